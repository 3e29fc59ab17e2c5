#!/usr/bin/env python3
"""Writes a Hugging Face model of Mixtral's or Qwen3-MoE's architecture as GGUF, for llama.cpp: the same weights as
Moestro packs, so that both sides route tokens to the same experts and do the same work.

    peer_models.py MODEL_DIR bf16|q8_0|q4_0 OUT.gguf

Every matrix gets the precision but the router, which like the norms is f32, as llama.cpp's own converter has it. One
tensor at a time is in memory."""

import json
import math
import pathlib
import shutil
import sys
import time

import gguf
import numpy as np

KINDS = dict(bf16=gguf.GGMLQuantizationType.BF16, q8_0=gguf.GGMLQuantizationType.Q8_0,
             q4_0=gguf.GGMLQuantizationType.Q4_0)


class Checkpoint:
    """bf16 tensors of safetensors files, as f32 when they are asked for."""

    def __init__(self, home):
        self.config = json.loads((home / "config.json").read_text())
        self.places = {}
        for path in sorted(home.glob("*.safetensors")):
            with open(path, "rb") as f:
                length = int.from_bytes(f.read(8), "little")
                header = json.loads(f.read(length))
            data = np.memmap(path, np.uint8, "r", 8 + length)
            for name, entry in header.items():
                if name != "__metadata__":
                    self.places[name] = (data, entry)

    def __contains__(self, name):
        return name in self.places

    def shape(self, name):
        return self.places[name][1]["shape"]

    def get(self, name):
        data, entry = self.places[name]
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "F32":
            return data[begin:end].view(np.float32).reshape(entry["shape"])
        if entry["dtype"] != "BF16":
            raise SystemExit(f"error: {name} is {entry['dtype']}; bf16 and f32 are read here")
        return (data[begin:end].view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])


def pairs_side_by_side(heads):
    """llama.cpp rotates components 2j and 2j + 1 in this architecture, where Hugging Face has j and j + half."""
    def turn(w):
        return w.reshape(heads, 2, w.shape[0] // heads // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
    return turn


def tensors(source):
    """(name in GGUF, quantised, shape, a function that reads it)"""
    c = source.config
    mixtral = c["model_type"] == "mixtral"
    experts = c["num_local_experts" if mixtral else "num_experts"]

    def plain(to, name, quantised=True, turn=lambda w: w):
        return to, quantised, tuple(source.shape(name)), lambda: turn(source.get(name))

    def stacked(to, names):
        return to, True, (len(names), *source.shape(names[0])), lambda: np.stack([source.get(n) for n in names])

    yield plain("token_embd.weight", "model.embed_tokens.weight")
    for n in range(c["num_hidden_layers"]):
        hf, p = f"model.layers.{n}.", f"blk.{n}."
        attention = hf + "self_attn."
        yield plain(p + "attn_norm.weight", hf + "input_layernorm.weight", False)
        for x, heads in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"])):
            yield plain(p + f"attn_{x}.weight", attention + f"{x}_proj.weight", True,
                        pairs_side_by_side(heads) if mixtral else lambda w: w)
        yield plain(p + "attn_v.weight", attention + "v_proj.weight")
        yield plain(p + "attn_output.weight", attention + "o_proj.weight")
        if attention + "q_norm.weight" in source:
            yield plain(p + "attn_q_norm.weight", attention + "q_norm.weight", False)
            yield plain(p + "attn_k_norm.weight", attention + "k_norm.weight", False)
        yield plain(p + "ffn_norm.weight", hf + "post_attention_layernorm.weight", False)
        moe = hf + ("block_sparse_moe." if mixtral else "mlp.")
        yield plain(p + "ffn_gate_inp.weight", moe + "gate.weight", False)
        for x, w in (("gate", "w1" if mixtral else "gate_proj"), ("up", "w3" if mixtral else "up_proj"),
                     ("down", "w2" if mixtral else "down_proj")):
            yield stacked(p + f"ffn_{x}_exps.weight", [f"{moe}experts.{e}.{w}.weight" for e in range(experts)])
    yield plain("output_norm.weight", "model.norm.weight", False)
    if "lm_head.weight" in source:
        yield plain("output.weight", "lm_head.weight")


def put_vocabulary(w, size):
    """Bytes, an end of text and one merge: what a file must have so that it can be packed. Tokens are drawn at random
    here, so it does not matter that the checkpoint's are others."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in printable]
    tokens = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))] + ["<|endoftext|>", "\u0120t"]
    if size < len(tokens):
        raise SystemExit(f"error: a vocabulary of {size} tokens; {len(tokens)} are written at least")
    filling = range(len(tokens), size)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens + [f"[PAD{i}]" for i in filling])
    w.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL, gguf.TokenType.NORMAL] +
                      [gguf.TokenType.UNUSED for _ in filling])
    w.add_token_merges(["\u0120 t"])
    w.add_bos_token_id(256)
    w.add_eos_token_id(256)
    w.add_add_bos_token(False)


def put_config(w, c):
    mixtral = c["model_type"] == "mixtral"
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_expert_count(c["num_local_experts" if mixtral else "num_experts"])
    w.add_expert_used_count(c["num_experts_per_tok"])
    if not mixtral:
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_vocab_size(c["vocab_size"])
    put_vocabulary(w, c["vocab_size"])


def write(source, dtype, path):
    """`source`: a Checkpoint, or what has its config, shape(), get() and `in`. Tensors are asked for in the order of
    tensors()."""
    kind = KINDS[dtype]
    types = {"mixtral": "llama", "qwen3_moe": "qwen3moe"}
    if source.config["model_type"] not in types:
        raise SystemExit(
            f"error: {path}: the model is a {source.config['model_type']}; {' and '.join(types)} are written here")
    w = gguf.GGUFWriter(path, types[source.config["model_type"]])
    put_config(w, source.config)
    entries = list(tensors(source))
    per, size = gguf.GGML_QUANT_SIZES[kind]
    total = 0
    for name, quantised, shape, _ in entries:
        n = math.prod(shape) // per * size if quantised else math.prod(shape) * 4
        w.add_tensor_info(name, shape, np.dtype(np.float32), n, raw_dtype=kind if quantised else None)
        total += n
    free = shutil.disk_usage(pathlib.Path(path).parent).free
    if free < total + (64 << 20):
        raise SystemExit(
            f"error: {path}: {total / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free; make room, or name another folder "
            f"with --dir"
        )
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    told = time.monotonic()
    for i, (_, quantised, _, read) in enumerate(entries):
        value = read()
        w.write_tensor_data(gguf.quants.quantize(value, kind) if quantised else value)
        if time.monotonic() - told > 5:
            told = time.monotonic()
            print(f"{path}: {i + 1} of {len(entries)} tensors", file=sys.stderr, flush=True)
    w.close()


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[2] not in KINDS:
        raise SystemExit(__doc__)
    write(Checkpoint(pathlib.Path(sys.argv[1])), *sys.argv[2:])
