#!/usr/bin/env python3
"""Writes a random model of a benchmark's shape, in Hugging Face layout (bf16, sharded safetensors), or as GGUF for
llama.cpp.

    scripts/make_bench_model.py --shape mixtral-mini -o build/bench/mixtral-mini
    scripts/make_bench_model.py --shape mixtral-mini --gguf bf16 -o build/bench/mixtral-mini.bf16.gguf

Both have the same weights where the seed is the same, and neither needs the other: a large shape needs room for one of
them only. Weights are N(0, 0.02), norms 1, embeddings N(0, 1); every expert differs. Memory stays small whatever the
shape, for values are made, rounded and written a few million at a time (GGUF: a layer). Needs numpy, GGUF also the
package gguf. The tokenizer knows bytes; the rest of its vocabulary is never produced by encoding.
"""

import argparse
import json
import math
import pathlib
import shutil
import struct
import sys

try:
    import numpy as np
except ImportError:
    raise SystemExit("error: numpy is missing; install it (apt install python3-numpy, or pip install numpy)")

VOCAB, CHUNK, SHARD = 32_000, 4 << 20, 2_000_000_000

COMMON = dict(
    attention_dropout=0.0,
    bos_token_id=256,
    eos_token_id=256,
    hidden_act="silu",
    initializer_range=0.02,
    max_position_embeddings=32768,
    output_router_logits=False,
    rms_norm_eps=1e-5,
    rope_scaling=None,
    rope_theta=1e6,
    router_aux_loss_coef=0.02,
    sliding_window=None,
    tie_word_embeddings=False,
    torch_dtype="bfloat16",
    use_cache=True,
    vocab_size=VOCAB,
)
MIXTRAL = dict(COMMON, architectures=["MixtralForCausalLM"], model_type="mixtral", num_experts_per_tok=2,
               num_local_experts=8, router_jitter_noise=0.0)
SHAPES = {
    "mixtral-mini": dict(MIXTRAL, hidden_size=1024, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=4,
                         head_dim=64, intermediate_size=3584),
    "qwen3moe-mini": dict(COMMON, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", attention_bias=False,
                          decoder_sparse_step=1, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                          num_key_value_heads=4, head_dim=128, intermediate_size=3072, max_window_layers=24,
                          mlp_only_layers=[], moe_intermediate_size=384, norm_topk_prob=True, num_experts=64,
                          num_experts_per_tok=8, use_sliding_window=False),
    "mixtral-12gb": dict(MIXTRAL, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=64, intermediate_size=7168),
}


def tensors(c):
    """(name, shape, kind) in the order written; kind is the deviation of a normal distribution, or None for ones."""
    d, h = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * h, c["num_key_value_heads"] * h
    mixtral = c["model_type"] == "mixtral"
    ffn = c["intermediate_size"] if mixtral else c["moe_intermediate_size"]
    experts = c["num_local_experts"] if mixtral else c["num_experts"]
    moe, (gate, up, down) = ("block_sparse_moe", ("w1", "w3", "w2")) if mixtral else ("mlp", ("gate_proj", "up_proj",
                                                                                              "down_proj"))
    yield "model.embed_tokens.weight", (VOCAB, d), 1.0
    for n in range(c["num_hidden_layers"]):
        p = f"model.layers.{n}."
        yield p + "input_layernorm.weight", (d,), None
        for x, rows in (("q", q), ("k", kv), ("v", kv)):
            yield p + f"self_attn.{x}_proj.weight", (rows, d), 0.02
        yield p + "self_attn.o_proj.weight", (d, q), 0.02
        if not mixtral:
            yield p + "self_attn.q_norm.weight", (h,), None
            yield p + "self_attn.k_norm.weight", (h,), None
        yield p + "post_attention_layernorm.weight", (d,), None
        yield p + f"{moe}.gate.weight", (experts, d), 0.02
        for e in range(experts):
            for x, shape in ((gate, (ffn, d)), (up, (ffn, d)), (down, (d, ffn))):
                yield p + f"{moe}.experts.{e}.{x}.weight", shape, 0.02
    yield "model.norm.weight", (d,), None
    yield "lm_head.weight", (VOCAB, d), 0.02


def to_bf16(values):
    """float32 -> bf16 bits, to nearest, ties to even (values are finite)."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype("<u2")


def values(shape, deviation, rng):
    """A tensor's numbers as bf16 bits, in pieces."""
    left = math.prod(shape)
    while left:
        n = min(left, CHUNK)
        v = np.ones(n, np.float32) if deviation is None else rng.standard_normal(n, np.float32) * np.float32(deviation)
        yield to_bf16(v)
        left -= n


class Unwritten:
    """The model as peer_models.py reads a checkpoint, made while it is read. Tensors that come before the one asked for
    are kept until they are."""

    def __init__(self, config, seed):
        self.config, self.kept, self.rng = config, {}, np.random.default_rng(seed)
        self.entries = list(tensors(config))
        self.shapes = {name: shape for name, shape, _ in self.entries}
        self.coming = iter(self.entries)

    def __contains__(self, name):
        return name in self.shapes

    def shape(self, name):
        return self.shapes[name]

    def get(self, name):
        while name not in self.kept:
            made, shape, deviation = next(self.coming)
            self.kept[made] = np.concatenate(list(values(shape, deviation, self.rng)))
        return (self.kept.pop(name).astype(np.uint32) << 16).view(np.float32).reshape(self.shapes[name])


def write_shard(path, entries, rng):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _ in entries:
        size = 2 * math.prod(shape)
        header[name] = dict(dtype="BF16", shape=list(shape), data_offsets=[at, at + size])
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, shape, deviation in entries:
            for piece in values(shape, deviation, rng):
                f.write(piece.data)


def byte_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes, in the order of the bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(spare)) for b in range(256)]


def tokenizer():
    vocab = {c: i for i, c in enumerate(byte_alphabet())}
    vocab["<|endoftext|>"] = 256
    vocab.update({f"<|unused_{i}|>": i for i in range(257, VOCAB)})
    eot = dict(id=256, content="<|endoftext|>", single_word=False, lstrip=False, rstrip=False, normalized=False,
               special=True)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                 fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=[])
    return dict(version="1.0", truncation=None, padding=None, added_tokens=[eot], normalizer=None, pre_tokenizer=level,
                post_processor=None, decoder=level, model=model)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", required=True, choices=SHAPES)
    p.add_argument("-o", "--out", required=True, type=pathlib.Path, metavar="PATH",
                   help="folder to write, which must be new or empty; with --gguf a file")
    p.add_argument("--gguf", choices=["bf16", "q8_0", "q4_0"], help="write a GGUF file of this precision instead")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    config = SHAPES[args.shape]
    if args.gguf:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))
        try:
            import peer_models
        except ImportError as e:
            raise SystemExit(
                f"error: {e}; --gguf needs the packages of scripts/python/requirements-peers.txt (scripts/bench_peers "
                f"installs them)"
            )
        return peer_models.write(Unwritten(config, args.seed), args.gguf, args.out)
    if args.out.exists() and any(args.out.iterdir()):
        raise SystemExit(f"error: {args.out}: not empty; name a new folder")
    shards, size = [[]], 0
    for entry in tensors(config):
        n = 2 * math.prod(entry[1])
        if shards[-1] and size + n > SHARD:
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += n
    total = sum(2 * math.prod(s) for shard in shards for _, s, _ in shard)
    args.out.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(args.out).free
    if free < total + (256 << 20):
        raise SystemExit(
            f"error: {args.out}: {total / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free; make room or choose another "
            f"folder"
        )
    rng, index = np.random.default_rng(args.seed), {}
    for i, entries in enumerate(shards, 1):
        name = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        write_shard(args.out / name, entries, rng)
        index.update({e[0]: name for e in entries})
        print(f"{name} ({i} of {len(shards)})", file=sys.stderr)

    def put(name, value, indent=2):
        (args.out / name).write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")

    put("model.safetensors.index.json", dict(metadata=dict(total_size=total), weight_map=index))
    put("tokenizer.json", tokenizer(), None)
    put(
        "tokenizer_config.json",
        dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|endoftext|>", model_max_length=32768,
             clean_up_tokenization_spaces=False))
    put("generation_config.json", dict(bos_token_id=256, eos_token_id=256))
    put("config.json", config)


if __name__ == "__main__":
    main()
