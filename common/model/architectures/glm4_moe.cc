#include "common/model/architectures/architecture.h"

namespace moestro::model {

// GLM-4.5, 4.6 and 4.7: half of each head is rotated, the first layers are dense, and layers that predict further
// tokens follow the last.
void describe_glm4_moe(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base =
      read_decoder(config, {.rope = {.partial_rotary = 0.5}, .norm_eps = 1e-5, .kv_heads = 8}, spec);
  base.attention.qkv_bias = config.flag_or("attention_bias", false);
  if (config.flag_or("use_qk_norm", false)) base.attention.qk_norm = AttentionSpec::QkNorm::kPerHead;
  expect_layer_types(config, base.layers, false);
  spec.mtp_layers = config.count_or("num_nextn_predict_layers", 1, kLayersMax, 0);
  MoeSpec moe = read_grouped_moe(config, spec.hidden);
  moe.router.normalise = config.flag_or("norm_topk_prob", true);
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_dense_first(config, base.layers, 1), dense_ffn, spec);
}

}  // namespace moestro::model
