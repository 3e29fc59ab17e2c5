"""Random models of the bench shapes as GGUF, for llama.cpp. Same shapes and formats as scripts/make_bench_model.py makes for Moestro; the numbers
differ, which changes no speed."""

import importlib.util
import pathlib

HERE = pathlib.Path(__file__).resolve().parent


def shapes():
    spec = importlib.util.spec_from_file_location("make_bench_model", HERE.parent / "make_bench_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SHAPES


def write(shape, dtype, path):
    """dtype: bf16, q8_0 or q4_0, of every matrix but router and norms, which llama.cpp keeps in f32."""
    import gguf
    import numpy as np

    c = shapes()[shape]
    mixtral = c["model_type"] == "mixtral"
    arch = "llama" if mixtral else "qwen3moe"
    d, h, layers = c["hidden_size"], c["head_dim"], c["num_hidden_layers"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    experts = c["num_local_experts"] if mixtral else c["num_experts"]
    ffn = c["intermediate_size"] if mixtral else c["moe_intermediate_size"]
    kind = dict(bf16=gguf.GGMLQuantizationType.BF16, q8_0=gguf.GGMLQuantizationType.Q8_0, q4_0=gguf.GGMLQuantizationType.Q4_0)[dtype]
    rng = np.random.default_rng(1)
    made = {}

    def matrix(*dims):
        """One block of noise for each shape: its values are read from different memory in every tensor."""
        if dims not in made:
            rows = rng.standard_normal((min(dims[-2], 512), dims[-1]), np.float32) * np.float32(0.02)
            quantised = gguf.quants.quantize(rows, kind)
            reps = -(-dims[-2] // rows.shape[0])
            one = np.tile(quantised, (reps, 1))[: dims[-2]]
            made[dims] = np.broadcast_to(one, (*dims[:-2], *one.shape)).copy() if len(dims) == 3 else one
        return made[dims]

    w = gguf.GGUFWriter(path, arch, use_temp_file=True)
    w.add_block_count(layers)
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(d)
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(h)
    w.add_value_length(h)
    w.add_rope_dimension_count(h)
    w.add_rope_freq_base(c["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_expert_count(experts)
    w.add_expert_used_count(c["num_experts_per_tok"])
    if not mixtral:
        w.add_expert_feed_forward_length(ffn)
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("no_vocab")

    def put(name, value):
        quantised = value.dtype != np.float32
        w.add_tensor(name, value, raw_dtype=kind if quantised else None)

    ones = lambda n: np.ones(n, np.float32)
    put("token_embd.weight", matrix(c["vocab_size"], d))
    for i in range(layers):
        p = f"blk.{i}."
        put(p + "attn_norm.weight", ones(d))
        for name, rows in (("attn_q", heads * h), ("attn_k", kv * h), ("attn_v", kv * h)):
            put(p + name + ".weight", matrix(rows, d))
        put(p + "attn_output.weight", matrix(d, heads * h))
        if not mixtral:
            put(p + "attn_q_norm.weight", ones(h))
            put(p + "attn_k_norm.weight", ones(h))
        put(p + "ffn_norm.weight", ones(d))
        put(p + "ffn_gate_inp.weight", rng.standard_normal((experts, d), np.float32) * np.float32(0.02))
        put(p + "ffn_gate_exps.weight", matrix(experts, ffn, d))
        put(p + "ffn_up_exps.weight", matrix(experts, ffn, d))
        put(p + "ffn_down_exps.weight", matrix(experts, d, ffn))
    put("output_norm.weight", ones(d))
    put("output.weight", matrix(c["vocab_size"], d))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
