"""Tiny random models in the quantised forms that checkpoints have, with what transformers says of their dequantised
weights (tests/fixtures/quantised). For make_fixtures.py."""

import copy
import json
import pathlib
import shutil

import quantised

ROPE = {"rope_type": "default", "rope_theta": 10000.0}
QWEN3 = dict(num_hidden_layers=1, intermediate_size=24, head_dim=16, num_experts_per_tok=2, norm_topk_prob=True,
             rope_parameters=ROPE)


def groups(weights, form):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"], "quantization_status":
            "compressed", "kv_cache_scheme": None,
            "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": weights}}}


# encode: a matrix -> its tensors by the ends of their names, and their numbers. plain: matrices that stay as they are.
VARIANTS = {
    "qwen3_moe_fp8": dict(
        arch="Qwen3Moe", dtype="bfloat16", encode=lambda w: quantised.fp8(w, (128, 128), "bfloat16"), shards=2,
        config=dict(QWEN3, hidden_size=128, moe_intermediate_size=128, num_experts=3),
        says={"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
              "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}),
    "deepseek_v3_fp8": dict(
        arch="DeepseekV3", dtype="bfloat16", encode=lambda w: quantised.fp8(w, (128, 128)),
        config=dict(num_hidden_layers=2, num_key_value_heads=4, intermediate_size=96, moe_intermediate_size=32,
                    q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                    n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=2, topk_group=1,
                    first_k_dense_replace=1, rope_parameters=ROPE),
        says={"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}),
    "minimax_m2_fp8_tensor": dict(
        arch="MiniMaxM2", dtype="bfloat16", encode=lambda w: quantised.fp8(w, None),
        config=dict(intermediate_size=32, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
                    rope_parameters={**ROPE, "partial_rotary_factor": 0.5}),
        says={"quant_method": "fp8", "fmt": "float8_e4m3fn", "weight_block_size": None}),
    "mixtral_gptq": dict(
        arch="Mixtral", dtype="float16", encode=lambda w: quantised.gptq(w, 128, True), zero_biases=True,
        config=dict(hidden_size=128, num_hidden_layers=1, intermediate_size=128, num_local_experts=3,
                    num_experts_per_tok=2, sliding_window=None, rope_parameters=ROPE),
        says={"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True,
              "damp_percent": 0.1, "true_sequential": True, "model_name_or_path": None}),
    "qwen3_moe_gptq_groups_of_32": dict(
        arch="Qwen3Moe", dtype="bfloat16", config=dict(QWEN3, moe_intermediate_size=64, num_experts=4),
        encode=lambda w: quantised.gptq(w, 32, False, v2=True),
        says={"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "static_groups": True,
              "sym": False, "checkpoint_format": "gptq_v2", "dynamic": {"-:.*mlp.gate.*": {}}}),
    "qwen3_moe_awq": dict(
        arch="Qwen3Moe", dtype="float16", config=dict(QWEN3, moe_intermediate_size=64, num_experts=4),
        encode=lambda w: quantised.awq(w, 64),
        says={"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "GEMM",
              "modules_to_not_convert": ["gate"]}),
    "glm4_moe_packed_int4": dict(
        arch="Glm4Moe", dtype="bfloat16", encode=lambda w: quantised.packed_int4(w, 32, False),
        config=dict(num_hidden_layers=2, intermediate_size=64, moe_intermediate_size=32, head_dim=16,
                    n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1,
                    use_qk_norm=True, rope_parameters=ROPE),
        says=groups({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False,
                     "actorder": None}, "pack-quantized")),
    "qwen3_moe_packed_channels": dict(
        arch="Qwen3Moe", dtype="bfloat16", config=dict(QWEN3, moe_intermediate_size=64, num_experts=4),
        encode=lambda w: quantised.packed_int4(w, -1, True),
        says=groups({"num_bits": 4, "type": "int", "strategy": "channel", "symmetric": True}, "pack-quantized")),
    "glm4_moe_fp8_channels": dict(
        arch="Glm4Moe", dtype="bfloat16", encode=lambda w: quantised.fp8(w, (1, w.shape[1]), "bfloat16",
                                                                         "weight_scale"),
        config=dict(num_hidden_layers=1, intermediate_size=64, moe_intermediate_size=32, head_dim=16,
                    n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=0,
                    rope_parameters=ROPE),
        says=groups({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}, "float-quantized")),
    "qwen3_moe_nvfp4": dict(
        arch="Qwen3Moe", dtype="bfloat16", encode=lambda w: quantised.nvfp4(w, False), scales_of_inputs=True,
        config=dict(QWEN3, hidden_size=128, head_dim=32, moe_intermediate_size=128, num_experts=3),
        says=groups({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True},
                    "nvfp4-pack-quantized")),
    "qwen3_moe_modelopt": dict(
        arch="Qwen3Moe", dtype="bfloat16", encode=lambda w: quantised.nvfp4(w, True), scales_of_inputs=True,
        config=dict(QWEN3, hidden_size=128, head_dim=32, moe_intermediate_size=128, num_experts=3),
        says={"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "producer":
              {"name": "modelopt"}}),
}


def is_quantised(name, tensor):
    router = name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight"))
    plain = router or "embed" in name or "lm_head" in name
    return name.endswith(".weight") and tensor.dim() == 2 and not plain


def rewrite(path, v):
    """Puts quantised tensors into a file of plain ones. Returns the numbers of all of them."""
    import torch
    from safetensors.torch import load_file, save_file

    plain, tensors, numbers = load_file(path), {}, {}
    for name, tensor in plain.items():
        if not is_quantised(name, tensor):
            tensors[name], numbers[name] = tensor, tensor.float()
            continue
        base = name.removesuffix("weight")
        parts, numbers[name] = v["encode"](tensor.float())
        tensors.update({base + end: part.contiguous() for end, part in parts.items()})
        if v.get("zero_biases"):
            tensors[base + "bias"] = torch.zeros(tensor.shape[0], dtype=tensor.dtype)
        if v.get("scales_of_inputs"):
            tensors[base + "input_scale"] = torch.ones(1)
    if v.get("shards"):  # values and scales in different files
        path.unlink()
        parts = [{n: t for n, t in tensors.items() if n.endswith("_scale_inv") == scales} for scales in (False, True)]
        names = [f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
        for part, name in zip(parts, names):
            save_file(part, path.parent / name, metadata={"format": "pt"})
        index = {"metadata": {}, "weight_map": {n: names[i] for i, part in enumerate(parts) for n in part}}
        (path.parent / "model.safetensors.index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    else:
        save_file(tensors, path, metadata={"format": "pt"})
    return numbers


def dequantised(net, numbers, out):
    """The net with these numbers, through transformers' own reading of them."""
    from safetensors.torch import save_file

    plain = out / "plain"
    plain.mkdir()
    config = json.loads((out / "config.json").read_text())
    (plain / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    save_file({n: t.contiguous() for n, t in numbers.items()}, plain / "model.safetensors", metadata={"format": "pt"})
    twin = type(net).from_pretrained(plain, attn_implementation="eager", dtype="float32").eval()
    shutil.rmtree(plain)
    return twin


def make(name, out, build, reference, margin_min, prompts_of, bytes_max):
    """As gguf_fixtures.make."""
    import torch
    import transformers

    v = copy.deepcopy(VARIANTS[name])  # configurations fill in what their rope_parameters lack
    out = pathlib.Path(out) / name
    for seed in range(1, 200):
        shutil.rmtree(out, ignore_errors=True)
        net = build(v, seed).to(getattr(torch, v["dtype"]))
        net.save_pretrained(out)
        (out / "generation_config.json").unlink(missing_ok=True)
        numbers = rewrite(out / "model.safetensors", v)
        twin = dequantised(net, numbers, out)
        config = json.loads((out / "config.json").read_text())
        config["quantization_config"] = v["says"]
        (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        prompts, margin = reference(twin, prompts_of(seed))
        if margin <= margin_min:
            continue
        text = json.dumps({"transformers": transformers.__version__, "f32": {"prompts": prompts}})
        (out / "reference.json").write_text(text + "\n")
        size = sum(f.stat().st_size for f in out.glob("*.safetensors"))
        assert size <= bytes_max, f"{name}: {size} bytes"
        print(f"{name}: seed {seed}, least margin {margin:.2e}, {size:,} bytes")
        return
    raise SystemExit(f"{name}: no seed gives margins above {margin_min}")
