#include "common/model/architectures/architecture.h"

namespace moestro::model {

// Solar Open: GLM-4.5's router and shared experts in every layer, with heads that are rotated whole and not normed.
void describe_solar_open(ConfigReader& config, ModelSpec& spec) {
  config.count("head_dim", kHeadDimMax);  // transformers has 128 where it is missing
  DecoderBase base = read_decoder(config, {.rope = {.theta = 1e6}, .norm_eps = 1e-5, .kv_heads = 8}, spec);
  base.attention.qkv_bias = config.flag_or("attention_bias", false);
  expect_layer_types(config, base.layers, false);
  expect_zero(config, "first_k_dense_replace");
  expect_flag(config, "use_qk_norm", false);
  MoeSpec moe = read_grouped_moe(config, spec.hidden);
  moe.router.normalise = config.flag_or("norm_topk_prob", true);
  if (config.has("intermediate_size")) config.count("intermediate_size", kFfnMax);  // of dense layers: it has none
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
}

}  // namespace moestro::model
