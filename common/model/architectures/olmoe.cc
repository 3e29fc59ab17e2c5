#include "common/model/architectures/architecture.h"

namespace moestro::model {

// RMSNorm over the whole of q and of k, then clip_qkv on q, k and v, then rotation. No window.
void describe_olmoe(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {.norm_eps = 1e-5, .eos = 50279}, spec);
  AttentionSpec& attention = base.attention;
  attention.qk_norm = AttentionSpec::QkNorm::kFullWidth;
  attention.qkv_bias = attention.output_bias = config.flag_or("attention_bias", false);
  if (config.has("clip_qkv")) attention.clip_qkv = config.positive("clip_qkv");
  expect_flag(config, "qkv_bias", false);
  expect_flag(config, "use_qk_norm", true);
  expect_flag(config, "use_sliding_window", false);
  expect_zero(config, "shared_expert_intermediate_size");
  expect_layer_types(config, base.layers, false);
  if (config.has("sliding_window"))
    config.refuse_unsupported("sliding_window", "is not supported for OlmoeForCausalLM");
  if (!config.failed() && attention.heads * attention.head_dim != spec.hidden)
    config.refuse(invalid_argument(
        config.where() +
        ": OLMoE's norm of q is hidden_size wide, so head_dim must be hidden_size / num_attention_heads"));
  MoeSpec moe = read_moe(config, "num_experts", "num_local_experts", "intermediate_size", spec.hidden);
  moe.router.normalise = config.flag_or("norm_topk_prob", false);
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
}

}  // namespace moestro::model
