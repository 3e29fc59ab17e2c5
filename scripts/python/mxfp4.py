"""MXFP4 as gpt-oss is published in it (OCP Microscaling Formats 1.0): groups of 32 numbers along the reduction
dimension, E2M1 in 4 bits, low half of a byte first, with one exponent of E8M0 a group. For make_fixtures.py."""

GROUP = 32
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def encode(matrix):
    """[..., cols] -> blocks [..., cols / 32, 16] and scales [..., cols / 32], as u8."""
    import torch

    groups = matrix.reshape(*matrix.shape[:-1], -1, GROUP).double()
    largest = groups.abs().amax(-1).clamp(min=2.0**-100)
    exponents = torch.floor(torch.log2(largest)) - 2  # of 6 = 1.5 * 2^2
    scaled = groups / torch.exp2(exponents)[..., None]
    magnitudes = torch.tensor(MAGNITUDES, dtype=torch.float64)
    codes = (scaled.abs()[..., None] - magnitudes).abs().argmin(-1) + 8 * (scaled < 0)
    blocks = codes[..., 0::2] + 16 * codes[..., 1::2]
    return blocks.to(torch.uint8), (exponents + 127).to(torch.uint8)


def decode(blocks, scales):
    import torch

    values = torch.tensor([*MAGNITUDES, *(-m for m in MAGNITUDES)], dtype=torch.float64)
    codes = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2)
    numbers = values[codes.long()] * torch.exp2(scales.double() - 127)[..., None]
    return numbers.flatten(-2).float()


def nearest(matrix):
    return decode(*encode(matrix))


def rewrite(path):
    """Puts blocks and scales in place of the experts' matrices, [experts, in, out], of a safetensors file."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        matrix = tensors.pop(name).float().transpose(1, 2).contiguous()
        blocks, scales = encode(matrix)
        assert (decode(blocks, scales) == matrix).all(), name
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks.contiguous(), scales.contiguous()
    save_file(tensors, path, metadata={"format": "pt"})
