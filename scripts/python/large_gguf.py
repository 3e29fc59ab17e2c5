"""A GGUF file of any size: the metadata and tokenizer of a tiny fixture with other dimensions, and random blocks in the
mixture of formats that Q4_K_M files have. For timing its reader; the numbers are finite and mean nothing."""

import os
import pathlib

FIXTURE = (pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "gguf" / "qwen3moe_k_quants" /
           "qwen3moe_k_quants.gguf")
# The dimensions of Qwen3-30B-A3B.
HIDDEN, FFN, EXPERTS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 2048, 768, 128, 32, 4, 128, 128
ALIGNMENT = 32
# format -> its number in GGUF, numbers in a block, bytes of a block, and where in a block its f16 scales are
FORMATS = {"f32": (0, 1, 4, ()), "q4_k": (12, 256, 144, (0, 2)), "q6_k": (14, 256, 210, (208,))}


def pattern(kind):
    """At least a MiB of whole blocks."""
    _, _, block, scales = FORMATS[kind]
    if kind == "f32":
        return b"\0\0\x80\x3c" * (1 << 18)
    data = bytearray(os.urandom((1 << 20) // block * block))
    for at in scales:  # small and finite
        data[at::block] = bytes(len(data) // block)
        data[at + 1::block] = b"\x1c" * (len(data) // block)
    return bytes(data)


def tensors(layers):
    """(name, dimensions with columns first, format)"""
    yield "token_embd.weight", (HIDDEN, VOCAB), "q6_k"
    for i in range(layers):
        down = "q6_k" if i % 2 == 0 else "q4_k"
        for name, dimensions, kind in (
                ("attn_norm", (HIDDEN,), "f32"), ("attn_q", (HIDDEN, HEADS * HEAD_DIM), "q4_k"),
                ("attn_k", (HIDDEN, KV_HEADS * HEAD_DIM), "q4_k"), ("attn_v", (HIDDEN, KV_HEADS * HEAD_DIM), down),
                ("attn_output", (HEADS * HEAD_DIM, HIDDEN), "q4_k"), ("attn_q_norm", (HEAD_DIM,), "f32"),
                ("attn_k_norm", (HEAD_DIM,), "f32"), ("ffn_norm", (HIDDEN,), "f32"),
                ("ffn_gate_inp", (HIDDEN, EXPERTS), "f32"), ("ffn_gate_exps", (HIDDEN, FFN, EXPERTS), "q4_k"),
                ("ffn_up_exps", (HIDDEN, FFN, EXPERTS), "q4_k"), ("ffn_down_exps", (FFN, HIDDEN, EXPERTS), down)):
            yield f"blk.{i}.{name}.weight", dimensions, kind
    yield "output_norm.weight", (HIDDEN,), "f32"


def number(value, size):
    return value.to_bytes(size, "little")


def text(of):
    return number(len(of), 8) + of.encode()


def metadata(layers):
    header = FIXTURE.read_bytes()
    entries = bytearray(header[24:header.index(text("token_embd.weight"))])
    for key, value in (("block_count", layers), ("embedding_length", HIDDEN), ("attention.head_count", HEADS),
                       ("attention.head_count_kv", KV_HEADS), ("attention.key_length", HEAD_DIM),
                       ("attention.value_length", HEAD_DIM), ("rope.dimension_count", HEAD_DIM),
                       ("expert_count", EXPERTS), ("expert_used_count", 8), ("expert_feed_forward_length", FFN)):
        name = text("qwen3moe." + key)
        at = entries.index(name) + len(name) + 4  # behind the type
        entries[at:at + 4] = number(value, 4)
    return header[16:24], bytes(entries)


def write(path, layers):
    count, entries = metadata(layers)
    described, end, parts = b"", 0, []
    listed = list(tensors(layers))
    for name, dimensions, kind in listed:
        type_number, numbers, block, _ = FORMATS[kind]
        size = block
        for n in dimensions:
            size *= n
        size //= numbers
        described += (text(name) + number(len(dimensions), 4) + b"".join(number(n, 8) for n in dimensions) +
                      number(type_number, 4) + number(end, 8))
        parts.append((kind, size))
        end += -(-size // ALIGNMENT) * ALIGNMENT
    patterns = {kind: pattern(kind) for kind in FORMATS}
    with open(path, "wb") as out:
        out.write(b"GGUF" + number(3, 4) + number(len(listed), 8) + count + entries + described)
        out.write(bytes(-out.tell() % ALIGNMENT))
        for kind, size in parts:
            padding = -size % ALIGNMENT
            while size > 0:
                size -= out.write(patterns[kind][:size])
            out.write(bytes(padding))
