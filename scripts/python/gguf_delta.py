"""Tensors of the gated delta rule as llama.cpp's converter writes them into GGUF files (Qwen3-Next, Qwen3.5-MoE)."""

FAMILIES = ("qwen3next", "qwen35moe")
PARTS = {"in_proj_z": "attn_gate.weight", "in_proj_b": "ssm_beta.weight", "in_proj_a": "ssm_alpha.weight",
         "in_proj_ba": "ssm_ba.weight", "conv1d": "ssm_conv1d.weight", "A_log": "ssm_a", "dt_bias": "ssm_dt.bias",
         "norm": "ssm_norm.weight", "out_proj": "ssm_out.weight"}


def tensors(family, config, key, w):
    """[(tensor of the file, index of its numbers in `w`)] of the parameter `key`; none: it is no part of the rule."""
    import numpy as np

    if ".linear_attn." not in key:
        return []
    layer, part = key.split(".")[2], key.removesuffix(".weight").split(".")[-1]
    keys, each = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads
    key_dim, value_dim = config.linear_key_head_dim, config.linear_value_head_dim

    def of_heads(dim):
        """Heads of values: in Qwen3.5's files, those of all keys in turn."""
        heads = np.arange(keys * each).reshape(keys, each)
        heads = heads.T.ravel() if family == "qwen35moe" else heads.ravel()
        return (heads[:, None] * dim + np.arange(dim)).ravel()

    def named(name, index):
        return [(f"blk.{layer}.{name}", index)]

    if part == "in_proj_qkvz":  # by heads of keys
        rows = np.arange(len(w)).reshape(keys, -1)
        q, k, v, z = np.split(rows, np.cumsum([key_dim, key_dim, each * value_dim]), axis=1)
        return named("attn_qkv.weight", np.concatenate([q.ravel(), k.ravel(), v.ravel()])) + named(
            "attn_gate.weight", z.ravel())
    before = 2 * keys * key_dim  # rows of q and k
    with_values = np.concatenate([np.arange(before), before + of_heads(value_dim)])
    if part == "in_proj_qkv":
        return named("attn_qkv.weight", with_values)
    index = {"conv1d": (with_values, 0), "out_proj": (slice(None), of_heads(value_dim)),
             "in_proj_z": of_heads(value_dim), "norm": slice(None), "in_proj_ba": slice(None)}.get(part)
    return named(PARTS[part], of_heads(1) if index is None else index)


def stored(key, w):
    """The numbers of a parameter as the file has them: weights of norms as they multiply, decays without logarithm."""
    import numpy as np

    if key.endswith("A_log"):
        return -np.exp(w)
    return w + 1 if is_around_0(key) else w


def read(key, w):
    import numpy as np

    if key.endswith("A_log"):
        return np.log(-w)
    return w - 1 if is_around_0(key) else w


def is_around_0(key):
    return key.endswith("norm.weight") and not key.endswith("linear_attn.norm.weight")


def add_metadata(writer, v, config):
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if v.get("listed"):
        kinds = [kind == "linear_attention" for kind in config.layer_types] + [False] * v.get("mtp", 0)
        writer.add_array(f"{v['family']}.attention.recurrent_layers", kinds)
    else:
        writer.add_uint32(f"{v['family']}.full_attention_interval", 4)
    if v["family"] == "qwen35moe":
        writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])
        writer.add_uint32("qwen35moe.nextn_predict_layers", v.get("mtp", 0))
