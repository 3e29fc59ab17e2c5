"""GGUF files of tiny random models, with what transformers says of their dequantised weights (tests/fixtures/gguf), and
blocks of every number format with the numbers that gguf-py makes of them (tests/fixtures/blocks).

A variant names the number format of each kind of tensor. Formats that gguf-py cannot make (k-quants, IQ4_NL) get random
blocks with scales of a sensible size: what counts is that everybody reads the same numbers from them.
"""

import json
import pathlib

# tensor kind -> format. "exps" are the experts; "attn" q, k, v and o; "embd", "output", and "rest" other matrices.
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
BLOCKS = ["Q4_0", "Q5_0", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]
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
}


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
    f = v["formats"]
    if name.endswith(".bias") or "norm" in name or "gate_inp" in name or "exp_probs" in name:
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
    """ "blk.0.attn_q.weight"; None for a tensor that is handled otherwise."""
    stem, _, kind = key.rpartition(".")
    if key == "model.embed_tokens.weight":
        return "token_embd.weight"
    if key == "model.norm.weight":
        return "output_norm.weight"
    if key == "lm_head.weight":
        return "output.weight"
    layer, _, part = stem[len("model.layers."):].partition(".")
    if kind == "e_score_correction_bias":
        return f"blk.{layer}.exp_probs_b.bias"
    return f"blk.{layer}.{IN_LAYER[part]}.{kind}"


def convert(v, net, seed):
    """Tensors of the file; `net` gets the numbers that they stand for."""
    import numpy as np
    import torch

    random = np.random.default_rng(seed)
    tensors, done = [], set()
    named = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    heads = {"q": net.config.num_attention_heads, "k": net.config.num_key_value_heads}

    def add(name, values, kind):
        data, back = encoded(values, kind, random)
        tensors.append((name, data, kind))
        return back

    for key, p in named.items():
        if key in done or "inv_freq" in key or (key == "lm_head.weight" and net.config.tie_word_embeddings):
            continue
        w = p.detach().float().numpy()
        if ".experts." in key:
            layer = key.split(".")[2]
            # transformers stacks gate and up: [experts, 2 * ffn, hidden]
            if key.endswith("gate_up_proj"):
                ffn = w.shape[1] // 2
                parts = [(f"blk.{layer}.ffn_gate_exps.weight", w[:, :ffn]),
                         (f"blk.{layer}.ffn_up_exps.weight", w[:, ffn:])]
            else:
                parts = [(f"blk.{layer}.ffn_down_exps.weight", w)]
            backs = []
            for name, part in parts:
                kind = format_of(v, name)
                if v.get("separate"):
                    one = name.replace("_exps.weight", "")
                    backs.append(np.stack([add(f"{one}.{e}.weight", x, kind) for e, x in enumerate(part)]))
                else:
                    backs.append(add(name, part, kind))
            back = np.concatenate(backs, 1)
        else:
            name = gguf_name(key)
            if v["family"] == "glm4moe":
                name = name.replace("ffn_norm", "post_attention_norm")
            which = "q" if "q_proj" in key else "k" if "k_proj" in key else None
            turn = v["family"] == "llama" and which
            shaped = interleaved(w, heads[which]) if turn else w
            one_row = "shared_expert_gate" in key
            back = add(name, shaped[0] if one_row else shaped, format_of(v, name))
            back = back[None] if one_row else back
            back = separated(back, heads[which]) if turn else back
        with torch.no_grad():
            p.copy_(torch.from_numpy(np.ascontiguousarray(back)))
    for i in range(v.get("mtp", 0)):
        layer = net.config.num_hidden_layers + i
        tensors.append((f"blk.{layer}.nextn.enorm.weight", np.ones(net.config.hidden_size, np.float32), "F32"))
    return tensors


def add_metadata(writer, v, config):
    """As llama.cpp's converter writes it."""
    layers = config.num_hidden_layers + v.get("mtp", 0)
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_name("tiny")
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_expert_used_count(config.num_experts_per_tok)
    partial = rope.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(head_dim * partial))
    if v["family"] != "llama":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if rope["rope_type"] == "yarn":
        import gguf

        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    experts = {"Mixtral": "num_local_experts", "MiniMaxM2": "num_local_experts"}
    grouped = v["arch"] in ("Glm4Moe", "Dots1")
    writer.add_expert_count(getattr(config, "n_routed_experts" if grouped else experts.get(v["arch"], "num_experts")))
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if v["arch"] == "MiniMaxM2":
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_uint32("minimax-m2.expert_gating_func", 2)
    if v["arch"] == "Qwen2Moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if v["arch"] == "Olmoe":
        writer.add_clamp_kqv(config.clip_qkv)
    if grouped:
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
    if v["arch"] == "Glm4Moe":
        writer.add_uint32("glm4moe.expert_gating_func", 2)
        writer.add_uint32("glm4moe.expert_group_count", config.n_group)
        writer.add_uint32("glm4moe.expert_group_used_count", config.topk_group)
        writer.add_uint32("glm4moe.nextn_predict_layers", v.get("mtp", 0))


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
    print(f"blocks: {len(BLOCKS)} formats")
