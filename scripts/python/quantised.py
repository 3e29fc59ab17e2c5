"""Checkpoints whose values, scales and zero points are tensors of their own, written as their tools define them, for
make_fixtures.py: FP8 (transformers' finegrained_fp8), GPTQ, AWQ, and compressed-tensors. Each encoder returns the
tensors of a matrix [out, in] by the ends of their names, and the numbers in f32 that they stand for."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # nibble i of a word has column AWQ_ORDER[i] of its eight


def grid(scales, block, shape):
    """A scale for each number: scales [ceil(rows / block[0]), ceil(cols / block[1])]."""
    wide = scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return wide[:shape[0], :shape[1]]


def fp8(w, block, scale_dtype="float32", name="weight_scale_inv"):
    """Blocks of [rows, cols]; None: one scale for the tensor."""
    import torch

    rows, cols = w.shape
    of = block or (rows, cols)
    padded = torch.zeros(-(-rows // of[0]) * of[0], -(-cols // of[1]) * of[1])
    padded[:rows, :cols] = w
    largest = padded.abs().unflatten(0, (-1, of[0])).unflatten(2, (-1, of[1])).amax((1, 3))
    scales = (largest.clamp(min=1e-6) / 448).to(getattr(torch, scale_dtype))
    wide = grid(scales.float(), of, w.shape)
    values = (w / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
    tensors = {"weight": values, name: scales if block else scales.reshape(())}
    return tensors, values.float() * wide


def int4_values(w, group, symmetric, scale_dtype):
    """Numbers of 4 bits, scales [out, groups], zero points [out, groups]; and what they stand for."""
    import torch

    group = w.shape[1] if group == -1 else group
    parts = w.unflatten(1, (-1, group))
    if symmetric:
        scales = (2 * parts.abs().amax(-1).clamp(min=1e-6) / 15).to(scale_dtype)
        zeros = torch.full(scales.shape, 8)
    else:
        low, high = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
        scales = ((high - low).clamp(min=1e-6) / 15).to(scale_dtype)
        zeros = (-low / scales.float()).round().clamp(1, 15).long()
    values = (parts / scales.float()[..., None]).round().long() + zeros[..., None]
    values = values.clamp(0, 15)
    numbers = scales.float()[..., None] * (values - zeros[..., None]).float()
    return values.flatten(1), scales, zeros, numbers.flatten(1)


def words(nibbles):
    """[..., 8 n] -> i32 [..., n]; the first is in the lowest bits."""
    import torch

    shifted = nibbles.long().unflatten(-1, (-1, 8)) << (4 * torch.arange(8))
    total = shifted.sum(-1)
    return torch.where(total >= 2**31, total - 2**32, total).to(torch.int32)


def gptq(w, group, symmetric, order=None, v2=False, scale_dtype=None):
    """qweight [in / 8, out], qzeros [groups, out / 8], scales [groups, out], g_idx [in]. `order`: the group of each
    column. Version 1 stores zero points less 1."""
    import torch

    columns = torch.arange(w.shape[1])
    group = w.shape[1] if group == -1 else group
    g_idx = columns // group if order is None else order
    by_group = torch.argsort(g_idx, stable=True)
    values, scales, zeros, numbers = int4_values(w[:, by_group], group, symmetric, scale_dtype or torch.float16)
    back = torch.argsort(by_group)
    values, numbers = values[:, back], numbers[:, back]
    stored = zeros if v2 else zeros - 1
    return {"qweight": words(values).t().contiguous(), "qzeros": words(stored.t().contiguous()),
            "scales": scales.t().contiguous(), "g_idx": g_idx.to(torch.int32)}, numbers


def awq(w, group):
    """qweight [in, out / 8], qzeros [groups, out / 8], scales [groups, out]."""
    import torch

    values, scales, zeros, numbers = int4_values(w, group, False, torch.float16)

    def in_order(nibbles):  # [n, out]
        return words(nibbles.unflatten(1, (-1, 8))[..., list(AWQ_ORDER)].flatten(1))

    return {"qweight": in_order(values.t().contiguous()), "qzeros": in_order(zeros.t().contiguous()),
            "scales": scales.t().contiguous()}, numbers


def packed_int4(w, group, symmetric, scale_dtype=None):
    """compressed-tensors pack-quantized: weight_packed [out, in / 8], weight_scale [out, groups], weight_zero_point
    [out / 8, groups], weight_shape."""
    import torch

    values, scales, zeros, numbers = int4_values(w, group, symmetric, scale_dtype or torch.bfloat16)
    tensors = {"weight_packed": words(values), "weight_scale": scales,
               "weight_shape": torch.tensor(w.shape, dtype=torch.int64)}
    if not symmetric:
        tensors["weight_zero_point"] = words(zeros.t().contiguous()).t().contiguous()
    return tensors, numbers


def e2m1_codes(x):
    import torch

    magnitudes = torch.tensor(E2M1[:8])
    return (x.abs()[..., None] - magnitudes).abs().argmin(-1) + 8 * (x < 0)


def nvfp4(w, modelopt):
    """Groups of 16 with an e4m3 scale, and one f32 for the tensor: a divisor (compressed-tensors), or a factor
    (ModelOpt)."""
    import torch

    groups = w.unflatten(1, (-1, 16))
    largest = groups.abs().amax(-1)
    divisor = (448 * 6 / w.abs().max()).float()
    all_scale = (1 / divisor).float()
    scales = (largest / 6 * divisor).clamp(2**-6, 448).to(torch.float8_e4m3fn)
    factor = all_scale if modelopt else None
    wide = scales.float() * factor if modelopt else scales.float() / divisor
    codes = e2m1_codes(groups / wide[..., None])
    numbers = wide[..., None] * torch.tensor(E2M1)[codes]
    flat = codes.flatten(1)
    packed = (flat[:, 0::2] + 16 * flat[:, 1::2]).to(torch.uint8)
    if modelopt:
        tensors = {"weight": packed, "weight_scale": scales, "weight_scale_2": all_scale}
    else:
        tensors = {"weight_packed": packed, "weight_scale": scales, "weight_global_scale": divisor.reshape(1)}
    return tensors, numbers.flatten(1)


def halves_of_32(nibbles):
    """[..., 32 n] -> bytes [..., 16 n]: columns c and c + 16 of each 32."""
    parts = nibbles.unflatten(-1, (-1, 2, 16))
    return (parts[..., 0, :] + 16 * parts[..., 1, :]).flatten(-2)


def make_blocks(out, each):
    """FORMAT.bin: blocks as common/formats/blocks.h has them, then the f32 numbers of all of them."""
    import torch

    random = torch.Generator().manual_seed(1)

    def bytes_of(t):
        return t.contiguous().view(torch.uint8).reshape(each, -1)

    def write(name, parts, numbers):
        assert torch.isfinite(numbers).all(), name
        blocks = torch.cat([bytes_of(p) for p in parts], 1)
        (out / f"{name}.bin").write_bytes(blocks.numpy().tobytes() + numbers.float().contiguous().numpy().tobytes())

    def below(n, *shape):
        return torch.randint(0, n, shape, generator=random)

    def scale_of(*shape):
        return (torch.rand(shape, generator=random) - 0.3) * 10.0 ** (below(9, *shape) - 7).float()

    def e4m3(*shape):  # all but the two that are not numbers
        return (below(127, *shape) + 128 * below(2, *shape)).to(torch.uint8).view(torch.float8_e4m3fn)

    for name, columns in (("fp8", 128), ("fp8_g32", 32)):
        scale, values = scale_of(each, 1), e4m3(each, columns)
        write(name, (scale, values), scale * values.float())
    for columns in (128, 64, 32):
        values, zeros = below(16, each, columns), below(17, each, 1)
        bf16 = torch.arange(each)[:, None] % 2
        raw = scale_of(each, 1)
        scale = torch.where(bf16 == 1, raw.bfloat16().float(), raw.half().float())
        bits = torch.where(bf16 == 1, raw.bfloat16().view(torch.int16), raw.half().view(torch.int16))
        write(f"int4_g{columns}",
              (bits, zeros.to(torch.uint8), bf16.to(torch.uint8), halves_of_32(values).to(torch.uint8)),
              scale * (values - zeros).float())
    whole, scales, codes = scale_of(each, 1), e4m3(each, 8), below(16, each, 128)
    wide = (whole * scales.float()).repeat_interleave(16, 1)
    write("nvfp4", (whole, scales, halves_of_32(codes).to(torch.uint8)), wide * torch.tensor(E2M1)[codes])
