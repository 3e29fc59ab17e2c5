"""GGUF files of tiny random models, with what transformers says of their dequantised weights (tests/fixtures/gguf), and
blocks of every number format with the numbers that gguf-py makes of them (tests/fixtures/blocks).

A variant names the number format of each kind of tensor. Formats that gguf-py cannot make (k-quants, IQ4_NL) get random
blocks with scales of a sensible size: what counts is that everybody reads the same numbers from them.
"""

import json
import pathlib

import gguf_delta
import quantised

# tensor kind -> format. "exps" are the experts; "attn" q, k, v and o; "embd", "output", and "rest" other matrices.
# "layers": formats of single layers, in place of those.
VARIANTS = {
    "llama_q8_0": dict(
        arch="Mixtral", family="llama", tokenizer="spm",
        formats=dict(exps="Q8_0", attn="Q4_0", embd="F16", output="Q8_0"),
        config=dict(intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, sliding_window=None,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "olmoe_separate": dict(
        arch="Olmoe", family="olmoe", pre="olmo", separate=True,
        formats=dict(exps="Q5_0", attn="F16", embd="BF16", output="F32"),
        config=dict(intermediate_size=32, num_experts=4, num_experts_per_tok=2, num_key_value_heads=4, clip_qkv=0.9,
                    norm_topk_prob=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen2moe_split": dict(
        arch="Qwen2Moe", family="qwen2moe", pre="qwen2", parts=2,
        formats=dict(exps="BF16", attn="Q5_0", embd="Q8_0", output="BF16", rest="Q4_0"),
        config=dict(intermediate_size=48, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=4,
                    num_experts_per_tok=2, norm_topk_prob=False,
                    rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                     "original_max_position_embeddings": 32})),
    "qwen3moe_k_quants": dict(
        arch="Qwen3Moe", family="qwen3moe", pre="qwen2",
        formats=dict(gate_exps="Q4_K", up_exps="Q4_K", down_exps="Q5_K", attn="Q8_0", qkv="Q6_K", embd="Q6_K"),
        config=dict(hidden_size=256, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=32,
                    intermediate_size=24, moe_intermediate_size=256, num_experts=2, num_experts_per_tok=1,
                    norm_topk_prob=True, tie_word_embeddings=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen3moe_few_bits": dict(
        arch="Qwen3Moe", family="qwen3moe", pre="qwen2",
        formats=dict(gate_exps="Q2_K", up_exps="Q3_K", down_exps="Q2_K", attn="IQ4_NL", embd="Q3_K"),
        config=dict(hidden_size=256, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                    intermediate_size=24, moe_intermediate_size=256, num_experts=2, num_experts_per_tok=1,
                    norm_topk_prob=True, tie_word_embeddings=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen3moe_other_blocks": dict(
        arch="Qwen3Moe", family="qwen3moe", pre="qwen2",
        formats=dict(gate_exps="IQ4_XS", up_exps="Q5_1", down_exps="IQ4_XS", attn="Q4_1", embd="Q5_1"),
        config=dict(hidden_size=256, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                    intermediate_size=24, moe_intermediate_size=256, num_experts=2, num_experts_per_tok=1,
                    norm_topk_prob=True, tie_word_embeddings=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "qwen3moe_by_layer": dict(
        arch="Qwen3Moe", family="qwen3moe", pre="qwen2",
        formats=dict(exps="Q8_0", attn="Q8_0", embd="F16", rest="Q8_0"),
        layers={1: dict(exps="MXFP4", down_exps="Q5_0"), 2: dict(exps="Q4_0", down_exps="F16", attn="Q4_0")},
        config=dict(num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                    intermediate_size=24, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2,
                    norm_topk_prob=True, tie_word_embeddings=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "glm4moe_mxfp4": dict(
        arch="Glm4Moe", family="glm4moe", pre="glm4", mtp=1,
        formats=dict(exps="MXFP4", attn="Q8_0", embd="F16", output="Q8_0", rest="IQ4_NL"),
        config=dict(num_hidden_layers=2, intermediate_size=64, moe_intermediate_size=32, head_dim=16,
                    n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,
                    routed_scaling_factor=1.5, first_k_dense_replace=1, attention_bias=True, use_qk_norm=True,
                    norm_topk_prob=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "dots1_q8_0": dict(
        arch="Dots1", family="dots1", pre="qwen2",
        formats=dict(exps="Q8_0", attn="F16", embd="F16", output="F16", rest="Q8_0"),
        config=dict(intermediate_size=32, moe_intermediate_size=32, n_routed_experts=6, num_experts_per_tok=2,
                    n_shared_experts=1, routed_scaling_factor=2.5, first_k_dense_replace=1, norm_topk_prob=True,
                    sliding_window=None, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "minimax-m2_q4_0": dict(
        arch="MiniMaxM2", family="minimax-m2", pre="minimax-m2",
        formats=dict(exps="Q4_0", attn="BF16", embd="F16", output="Q4_0"),
        config=dict(intermediate_size=32, head_dim=16, num_local_experts=6, num_experts_per_tok=2,
                    rope_parameters={"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5})),
}
VARIANTS.update({
    "gpt-oss_mxfp4": dict(
        arch="GptOss", family="gpt-oss", pre="gpt-4o",
        formats=dict(exps="MXFP4", attn="Q8_0", embd="F16", output="Q8_0"),
        config=dict(intermediate_size=32, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=16,
                    rope_parameters={"rope_type": "yarn", "rope_theta": 1000.0, "factor": 8.0, "truncate": False,
                                     "original_max_position_embeddings": 32})),
    # kv_b in two tensors, whose blocks lie across what is read.
    "deepseek2_split": dict(
        arch="DeepseekV2", family="deepseek2", pre="gpt-2", split=True,
        formats=dict(exps="Q8_0", attn="Q5_0", embd="F16", output="Q8_0", rest="Q8_0"),
        config=dict(num_attention_heads=2, num_key_value_heads=2, intermediate_size=32, moe_intermediate_size=32,
                    q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=8, v_head_dim=32,
                    n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, topk_method="greedy",
                    first_k_dense_replace=1, rope_parameters={
                        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 0.707,
                        "mscale_all_dim": 0.707, "original_max_position_embeddings": 32})),
    "deepseek2_sigmoid": dict(
        arch="DeepseekV3", family="deepseek2", pre="deepseek-v3",
        formats=dict(exps="Q4_0", attn="Q8_0", embd="F16", output="F16", rest="Q8_0"),
        config=dict(num_attention_heads=2, num_key_value_heads=2, intermediate_size=32, moe_intermediate_size=32,
                    q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=32,
                    n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, n_group=4, topk_group=2,
                    routed_scaling_factor=2.5, norm_topk_prob=True, first_k_dense_replace=0,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    # GLM-4.7-Flash, whose files do not say that its router has sigmoids.
    "deepseek2_glm": dict(
        arch="Glm4MoeLite", family="deepseek2", pre="glm4", split=True, mtp=1,
        formats=dict(exps="Q4_0", attn="Q8_0", embd="F16", output="F16", rest="Q8_0"),
        config=dict(num_attention_heads=2, num_key_value_heads=2, intermediate_size=32, moe_intermediate_size=32,
                    q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=8, v_head_dim=32,
                    n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,
                    routed_scaling_factor=1.8, norm_topk_prob=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "ernie4_5-moe_q8_0": dict(
        arch="Ernie4_5_Moe", family="ernie4_5-moe", tokenizer="spm", bias_std=0.05,
        formats=dict(exps="Q8_0", attn="Q4_0", embd="F16", rest="Q8_0"),
        config=dict(num_hidden_layers=3, intermediate_size=32, moe_intermediate_size=32, moe_num_experts=5, moe_k=2,
                    moe_num_shared_experts=1, moe_layer_start_index=1, tie_word_embeddings=True,
                    rope_parameters={"rope_type": "default", "rope_theta": 500000.0})),
    "granitemoe_shared": dict(
        arch="GraniteMoeShared", family="granitemoe", pre="gpt-2",
        formats=dict(exps="Q5_0", attn="Q8_0", embd="F16", rest="Q8_0"),
        config=dict(intermediate_size=32, num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=32,
                    embedding_multiplier=2.0, attention_multiplier=0.2, residual_multiplier=0.5, logits_scaling=0.5,
                    tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    # With the factors of Llama 3's RoPE as a tensor.
    "llama4_q8_0": dict(
        arch="Llama4", config_class="Llama4TextConfig", family="llama4", pre="llama4",
        formats=dict(exps="Q8_0", attn="Q8_0", embd="F16", output="Q8_0", rest="Q4_0"),
        config=dict(num_hidden_layers=4, intermediate_size=32, intermediate_size_mlp=32, head_dim=16,
                    num_local_experts=3, num_experts_per_tok=1, interleave_moe_layer_step=2,
                    rope_parameters={"rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0,
                                     "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                     "original_max_position_embeddings": 32})),
    "qwen3next_q8_0": dict(
        arch="Qwen3Next", family="qwen3next", pre="qwen2",
        formats=dict(exps="Q8_0", attn="Q8_0", embd="F16", output="Q8_0", rest="Q4_0"),
        config=dict(num_hidden_layers=5, intermediate_size=32, moe_intermediate_size=32,
                    shared_expert_intermediate_size=32, head_dim=16, num_experts=4, num_experts_per_tok=2,
                    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
                    linear_value_head_dim=16,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25})),
    # Three heads of values for each of keys, a layer behind the others.
    "qwen35moe_q4_0": dict(
        arch="Qwen3_5Moe", config_class="Qwen3_5MoeTextConfig", family="qwen35moe", pre="qwen35", listed=True, mtp=1,
        formats=dict(exps="Q4_0", attn="Q8_0", embd="F16", rest="F32"),
        config=dict(num_hidden_layers=3, moe_intermediate_size=32, shared_expert_intermediate_size=32, head_dim=16,
                    num_experts=5, num_experts_per_tok=2, linear_num_key_heads=2, linear_num_value_heads=6,
                    linear_key_head_dim=12, linear_value_head_dim=16, tie_word_embeddings=True,
                    layer_types=["linear_attention", "full_attention", "linear_attention"],
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                                     "mrope_interleaved": True, "mrope_section": [2, 1, 1]})),
    "arctic_q8_0": dict(
        arch="Arctic", family="arctic", tokenizer="spm",
        formats=dict(exps="Q8_0", attn="Q8_0", embd="F16", output="Q8_0", rest="Q4_0"),
        config=dict(intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, parallel_attn_mlp_res=True,
                    moe_layer_frequency=1, sliding_window=None,
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "dbrx_q8_0": dict(
        arch="Dbrx", family="dbrx", pre="dbrx", base=False,
        formats=dict(exps="Q8_0", attn="Q8_0", embd="F16", output="Q8_0"),
        config=dict(vocab_size=128, d_model=64, n_heads=4, n_layers=2, max_seq_len=256, eos_token_id=2,
                    attn_config=dict(kv_n_heads=2, clip_qkv=3.0, rope_theta=10000.0),
                    ffn_config=dict(hidden_size=64, ffn_hidden_size=32, moe_num_experts=4, moe_top_k=2),
                    rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
})
BLOCKS = ["Q4_0", "Q5_0", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q4_1", "Q5_1", "IQ4_XS"]
BLOCKS_EACH = 12

# Tensor of transformers -> tensor of GGUF, within a layer.
IN_LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.router": "ffn_gate_inp", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
    "block_sparse_moe.router": "ffn_gate_inp", "feed_forward.router": "ffn_gate_inp",
    "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down",
    "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp", "feed_forward.shared_expert.up_proj": "ffn_up_shexp",
    "feed_forward.shared_expert.down_proj": "ffn_down_shexp", "residual_mlp.w1": "ffn_gate",
    "residual_mlp.w3": "ffn_up", "residual_mlp.w2": "ffn_down", "residual_layernorm": "ffn_norm",
    "norm_attn_norm.norm_1": "attn_norm", "norm_attn_norm.norm_2": "attn_output_norm",
    "norm_attn_norm.attn.Wqkv": "attn_qkv", "norm_attn_norm.attn.out_proj": "attn_output",
    "ffn.router.layer": "ffn_gate_inp",
}
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "transformer.wte.weight": "token_embd.weight",
    "transformer.norm_f.weight": "output_norm.weight",
}
INTERLEAVED = ("llama", "granitemoe", "arctic")


def random_blocks(kind, count, random, scale=None):
    """Bytes of `count` blocks. With a scale, numbers are about as large as it."""
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    b = random.integers(0, 256, (count, size), dtype=np.uint8)

    def put(at, values):
        b[:, at:at + 2] = values.astype(np.float16)[:, None].view(np.uint8).reshape(count, 2)

    spread = random.uniform(0.5, 1.0, count)
    if scale is None:
        scale, spread = 1.0, random.uniform(-1.0, 1.0, count) * 10.0 ** random.integers(-7, 3, count)
    d = scale * spread
    if kind == "MXFP4":
        b[:, 0] = random.integers(1, 250, count) if scale == 1.0 else 127 + round(np.log2(scale / 3))
    elif kind in ("Q4_0", "Q5_0", "Q8_0", "IQ4_NL"):
        put(0, d / {"Q4_0": 6, "Q5_0": 12, "Q8_0": 90, "IQ4_NL": 80}[kind])
    elif kind in ("Q4_1", "Q5_1"):
        put(0, d / {"Q4_1": 6, "Q5_1": 12}[kind]), put(2, -d)
    elif kind == "IQ4_XS":
        put(0, d / 1500)
    elif kind == "Q2_K":
        put(80, d / 18), put(82, d / 12)
    elif kind == "Q3_K":
        put(108, d / 60)
    elif kind in ("Q4_K", "Q5_K"):
        put(0, d / (400 if kind == "Q4_K" else 800)), put(2, d / 50)
    elif kind == "Q6_K":
        put(208, d / 1500)
    return b


def encoded(values, kind, random):
    """`values` in a format: the bytes, and the numbers that they stand for."""
    import numpy as np
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    t = GGMLQuantizationType[kind]
    if kind in ("F32", "F16"):
        data = values.astype(np.float32 if kind == "F32" else np.float16)
        return data, data.astype(np.float32)
    try:
        data = quantize(np.ascontiguousarray(values, np.float32), t)
    except NotImplementedError:
        columns = GGML_QUANT_SIZES[t][0]
        blocks = random_blocks(kind, values.size // columns, random, float(values.std()))
        data = blocks.reshape(*values.shape[:-1], -1)
    return data, dequantize(data, t).astype(np.float32).reshape(values.shape)


def format_of(v, name):
    layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
    f = v["formats"] | v.get("layers", {}).get(layer, {})
    if name.endswith((".bias", "ssm_a")) or any(
            part in name for part in ("norm", "conv1d", "gate_inp", "exp_probs", "attn_sinks")):
        return "F32"
    for part in ("gate_exps", "up_exps", "down_exps"):
        if f"ffn_{part}" in name:
            return f.get(part, f.get("exps"))
    if "qkv" in f and any(part in name for part in ("attn_q.", "attn_k.", "attn_v.")):
        return f["qkv"]
    if name.startswith("token_embd"):
        return f["embd"]
    if name == "output.weight":
        return f["output"]
    return f["attn"] if "attn_" in name else f.get("rest", "Q8_0")


def interleaved(w, heads):
    """Rows of q or k as llama's rotation has them: the halves of a head in turn."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def separated(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def gguf_name(key):
    """ "blk.0.attn_q.weight"."""
    if key in WHOLE:
        return WHOLE[key]
    stem, _, kind = key.removeprefix("model.layers.").removeprefix("transformer.blocks.").rpartition(".")
    layer, _, part = stem.partition(".")
    if kind == "e_score_correction_bias":
        return f"blk.{layer}.exp_probs_b.bias"
    if kind == "sinks":
        return f"blk.{layer}.attn_sinks.weight"
    return f"blk.{layer}.{IN_LAYER[part]}.{kind}"


def views(v, config, key, w):
    """Tensors of the file that the parameter `w` is made of, as views of it: [(name, view)]; none: it is one tensor."""
    layer = next(part for part in key.split(".") if part.isdigit()) if "layers" in key or "blocks" in key else None
    last = key.removesuffix(".weight").split(".")[-1]
    if v.get("split") and last == "kv_b_proj":
        heads = w.reshape(config.num_attention_heads, -1, w.shape[-1])
        nope = config.qk_nope_head_dim
        return [(f"blk.{layer}.attn_k_b.weight", heads[:, :nope].swapaxes(1, 2)),
                (f"blk.{layer}.attn_v_b.weight", heads[:, nope:])]
    if v["family"] == "granitemoe" and "shared_mlp" in key:
        half = config.shared_intermediate_size
        parts = {"gate": w[:half], "up": w[half:]} if last == "input_linear" else {"down": w}
        return [(f"blk.{layer}.ffn_{part}_shexp.weight", view) for part, view in parts.items()]
    kind = "bias" if last.endswith("_bias") else "weight"
    if last in ("w1", "v1", "w2") and v["family"] == "dbrx":
        stacked = w.reshape(config.ffn_config.moe_num_experts, -1, w.shape[-1])
        parts = {"w1": ("gate", stacked), "v1": ("up", stacked), "w2": ("down", stacked.swapaxes(1, 2))}[last]
        return [(f"blk.{layer}.ffn_{parts[0]}_exps.weight", parts[1])]
    if not (".experts." in key or last in ("input_linear", "output_linear")):
        return []
    if v["family"] in ("gpt-oss", "llama4") and kind == "weight":
        w = w.swapaxes(1, 2)
    if last.startswith("down") or last == "output_linear":
        return [(f"blk.{layer}.ffn_down_exps.{kind}", w)]
    ffn = w.shape[1] // 2
    gate, up = (w[:, 0::2], w[:, 1::2]) if v["family"] == "gpt-oss" else (w[:, :ffn], w[:, ffn:])
    return [(f"blk.{layer}.ffn_gate_exps.{kind}", gate), (f"blk.{layer}.ffn_up_exps.{kind}", up)]


def convert(v, net, seed):
    """Tensors of the file; `net` gets the numbers that they stand for."""
    import numpy as np
    import torch

    random = np.random.default_rng(seed)
    tensors = []
    named = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    config = net.config
    heads = {"q": config.num_attention_heads, "k": getattr(config, "num_key_value_heads", None)}

    def add(name, values):
        kind = format_of(v, name)
        data, back = encoded(np.ascontiguousarray(values), kind, random)
        tensors.append((name, data, kind))
        return back

    def put(parameter, values):
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))

    def add_separate(key):  # a parameter for each expert's matrix
        which = key.removesuffix(".weight").split(".")[-1]
        layer, part = key.split(".")[2], {"w1": "gate", "w3": "up", "w2": "down"}[which]
        all_of_it = [named[key.replace("experts.0.", f"experts.{e}.")] for e in range(config.num_local_experts)]
        back = add(f"blk.{layer}.ffn_{part}_exps.weight", np.stack([p.detach().float().numpy() for p in all_of_it]))
        for p, values in zip(all_of_it, back):
            put(p, values)

    for key, p in named.items():
        if "inv_freq" in key or (key == "lm_head.weight" and config.tie_word_embeddings):
            continue
        if v["family"] == "arctic" and ".experts." in key:
            if ".experts.0." in key:
                add_separate(key)
            continue
        w = p.detach().float().numpy().copy()
        if v["family"] in gguf_delta.FAMILIES:
            w = gguf_delta.stored(key, w)
            parts = gguf_delta.tensors(v["family"], config, key, w)
            for name, index in parts:
                w[index] = add(name, w[index])
            if parts:
                put(p, gguf_delta.read(key, w))
                continue
        parts = views(v, config, key, w)
        for name, view in parts:
            if v.get("separate"):
                one = name.replace("_exps.weight", "")
                for e in range(len(view)):
                    view[e] = add(f"{one}.{e}.weight", view[e])
            else:
                view[...] = add(name, view)
        if not parts:
            name = gguf_name(key)
            if v["family"] in ("glm4moe", "gpt-oss", *gguf_delta.FAMILIES):
                name = name.replace("ffn_norm", "post_attention_norm")
            if v["family"] == "arctic" and "post_attention" in key:
                name = name.replace("ffn_norm", "ffn_norm_exps")
            which = "q" if "q_proj" in key else "k" if "k_proj" in key else None
            turn = v["family"] in INTERLEAVED and which
            shaped = interleaved(w, heads[which]) if turn else w
            one_row = "shared_expert_gate" in key or (w.ndim == 2 and "e_score_correction_bias" in key)
            w = add(name, shaped[0] if one_row else shaped)
            w = w[None] if one_row else separated(w, heads[which]) if turn else w
        put(p, gguf_delta.read(key, w) if v["family"] in gguf_delta.FAMILIES else w)
    if v["family"] == "llama4":  # as the converter writes what Llama 3's scaling divides each frequency by
        inner = net.model.rotary_emb
        width = config.head_dim
        plain = 1.0 / (config.rope_parameters["rope_theta"]**(np.arange(0, width, 2, dtype=np.float32) / width))
        tensors.append(("rope_freqs.weight", (plain / inner.inv_freq.numpy()).astype(np.float32), "F32"))
    for i in range(v.get("mtp", 0)):
        layer = config.num_hidden_layers + i
        tensors.append((f"blk.{layer}.nextn.enorm.weight", np.ones(config.hidden_size, np.float32), "F32"))
    return tensors


def add_latents(writer, v, config):
    """The widths of latent attention; `split` as of later, when one head of a key is what is cached."""
    key = config.qk_nope_head_dim + config.qk_rope_head_dim
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_head_count_kv(1 if v.get("split") else config.num_attention_heads)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim if v.get("split") else key)
    writer.add_value_length(config.kv_lora_rank if v.get("split") else config.v_head_dim)
    if v.get("split"):
        writer.add_key_length_mla(key)
        writer.add_value_length_mla(config.v_head_dim)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    if config.rope_parameters.get("mscale_all_dim"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])


def add_own_metadata(writer, v, config):
    """What one family alone has."""
    family = v["family"]
    if family == "minimax-m2":
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_uint32("minimax-m2.expert_gating_func", 2)
    if family == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if family == "olmoe":
        writer.add_clamp_kqv(config.clip_qkv)
    if family == "dbrx":
        writer.add_clamp_kqv(config.attn_config.clip_qkv)
    if family == "glm4moe":
        writer.add_uint32("glm4moe.nextn_predict_layers", v.get("mtp", 0))
    if v["arch"] == "Glm4MoeLite":
        writer.add_uint32("deepseek2.nextn_predict_layers", v["mtp"])
    elif family in ("glm4moe", "deepseek2"):
        writer.add_uint32(f"{family}.expert_gating_func", 1 if v["arch"] == "DeepseekV2" else 2)
        if v["arch"] != "DeepseekV2":
            writer.add_uint32(f"{family}.expert_group_count", config.n_group)
            writer.add_uint32(f"{family}.expert_group_used_count", config.topk_group)
    if family == "gpt-oss":
        writer.add_sliding_window(config.sliding_window)
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if family == "ernie4_5-moe":
        writer.add_expert_shared_count(config.moe_num_shared_experts)
        writer.add_interleave_moe_layer_step(config.moe_layer_interval)
        writer.add_leading_dense_block_count(config.moe_layer_start_index)
    if family == "granitemoe":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if family in gguf_delta.FAMILIES:
        gguf_delta.add_metadata(writer, v, config)
    if family == "llama4":
        writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
        writer.add_expert_feed_forward_length(config.intermediate_size)


def first_of(config, *names):
    return next(value for name in names if (value := getattr(config, name, None)) is not None)


def add_metadata(writer, v, config):
    """As llama.cpp's converter writes it."""
    layers = config.num_hidden_layers + v.get("mtp", 0)
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    experts = getattr(config, "ffn_config", config)  # DBRX
    attention = getattr(config, "attn_config", config)
    writer.add_name("tiny")
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(first_of(experts, "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size",
                                            "moe_intermediate_size"))
    writer.add_head_count(config.num_attention_heads)
    if v["family"] == "dbrx":
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_expert_used_count(first_of(experts, "moe_k", "moe_top_k", "num_experts_per_tok"))
    writer.add_expert_count(first_of(experts, "n_routed_experts", "num_local_experts", "moe_num_experts",
                                     "num_experts"))
    if v["family"] == "deepseek2":
        add_latents(writer, v, config)
    else:
        writer.add_head_count_kv(first_of(attention, "num_key_value_heads", "kv_n_heads"))
        writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
        if v["family"] not in ("llama", "dbrx"):
            writer.add_key_length(head_dim)
            writer.add_value_length(head_dim)
    if rope["rope_type"] == "yarn":
        import gguf

        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if v["arch"] in ("Glm4Moe", "Glm4MoeLite", "Dots1", "DeepseekV2", "DeepseekV3"):
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_leading_dense_block_count(getattr(config, "first_k_dense_replace", 1))
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
    add_own_metadata(writer, v, config)


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:!?-'\"()/"


def byte_level_vocabulary(size):
    """Tokens, types and merges; most bytes are missing, as a vocabulary of 128 has no room for them."""
    tokens, types = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>"], [3, 3, 3, 4]
    tokens += ["Ġ", "Ċ", *LETTERS]
    pairs = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ġ", "a"), ("e", "r"), ("o", "n"), ("Ġ", "w")]
    tokens += [a + b for a, b in pairs]
    types += [1] * (len(tokens) - len(types))
    while len(tokens) < size:
        types.append(5)
        tokens.append(f"[PAD{len(tokens)}]")
    return tokens[:size], types[:size], [f"{a} {b}" for a, b in pairs]


def spm_vocabulary(size):
    tokens, types = ["<unk>", "<s>", "</s>"], [2, 3, 3]
    tokens += [f"<0x{b:02X}>" for b in (10, 0xC3, 0xA9)]
    types += [6] * 3
    merged = ["th", "the", "▁the", "in", "▁a", "er", "on", "▁w", "▁t", "he"]
    pieces = merged + ["▁", *LETTERS]
    scores = [0.0] * len(tokens) + [-float(i) for i in range(len(pieces))]
    tokens += pieces
    types += [1] * len(pieces)
    while len(tokens) < size:
        types.append(5), scores.append(-1e9)
        tokens.append(f"<unused{len(tokens)}>")
    return tokens[:size], types[:size], scores[:size]


def add_tokenizer(writer, v, size):
    if v.get("tokenizer") == "spm":
        tokens, types, scores = spm_vocabulary(size)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_scores(scores)
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(True)
    else:
        tokens, types, merges = byte_level_vocabulary(size)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(v["pre"])
        writer.add_token_merges(merges)
        writer.add_pad_token_id(0)
        writer.add_add_bos_token(False)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def write(name, v, net, tensors, out):
    import gguf

    file = out / f"{name}.gguf"
    limit = sum(t[1].nbytes for t in tensors) // 2 + 4096 if v.get("parts") else 0
    writer = gguf.GGUFWriter(file, v["family"], split_max_size=limit)
    add_metadata(writer, v, net.config)
    add_tokenizer(writer, v, net.config.vocab_size)
    for tensor, data, kind in tensors:
        writer.add_tensor(tensor, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name, out, build, reference, margin_min, prompts_of, bytes_max):
    """build(variant, seed), reference(net, prompts) -> (sections, margin), prompts_of(seed)."""
    import transformers

    v = VARIANTS[name]
    out = out / name
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    for seed in range(1, 200):
        net = build(v, seed)
        tensors = convert(v, net, seed)
        prompts, margin = reference(net, prompts_of(seed))
        if margin <= margin_min:
            continue
        write(name, v, net, tensors, out)
        text = json.dumps({"transformers": transformers.__version__, "f32": {"prompts": prompts}})
        (out / "reference.json").write_text(text + "\n")
        size = sum(f.stat().st_size for f in out.glob("*.gguf"))
        assert size <= bytes_max, f"{name}: {size} bytes"
        print(f"{name}: seed {seed}, least margin {margin:.2e}, {size:,} bytes")
        return
    raise SystemExit(f"{name}: no seed gives margins above {margin_min}")


def make_blocks(out: pathlib.Path):
    """FORMAT.bin: blocks, then the f32 numbers of all of them."""
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for kind in BLOCKS:
        blocks = random_blocks(kind, BLOCKS_EACH, random)
        numbers = dequantize(blocks.reshape(1, -1), GGMLQuantizationType[kind]).astype("<f4")
        assert np.isfinite(numbers).all(), kind
        (out / f"{kind.lower()}.bin").write_bytes(blocks.tobytes() + numbers.tobytes())
    quantised.make_blocks(out, BLOCKS_EACH)
    print(f"blocks: {len(BLOCKS)} formats of GGUF, and those of other checkpoints")
