#include "common/model/architectures/architecture.h"

namespace moestro::model {
namespace {

// null with use_sliding_window is no window at all; without the key the window is 4096.
int64_t read_window(ConfigReader& config) {
  const bool use = config.flag_or("use_sliding_window", false);
  if (config.is_null("sliding_window")) return 0;
  const int64_t window = config.count_or("sliding_window", 4096, kPositionsMax, 0);
  if (use && window == 0)
    config.refuse(invalid_argument(config.where() + ": use_sliding_window needs a sliding_window above 0"));
  return use ? window : 0;
}

}  // namespace

// RMSNorm over each head of q and k. transformers reads max_window_layers for no layer: the window holds for all or
// none.
void describe_qwen3_moe(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {.kv_heads = 4}, spec);
  base.attention.qk_norm = AttentionSpec::QkNorm::kPerHead;
  base.attention.qkv_bias = base.attention.output_bias = config.flag_or("attention_bias", false);
  base.attention.sliding_window = read_window(config);
  if (config.has("max_window_layers")) config.count_or("max_window_layers", 0, kPositionsMax, 0);
  expect_layer_types(config, base.layers, base.attention.sliding_window > 0);
  expect_flag(config, "qkv_bias", false);
  expect_flag(config, "use_qk_norm", true);
  expect_zero(config, "shared_expert_intermediate_size");
  MoeSpec moe = read_moe(config, "num_experts", "num_local_experts", "moe_intermediate_size", spec.hidden);
  moe.router.normalise = config.flag_or("norm_topk_prob", false);
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_sparse_layers(config, base.layers), dense_ffn, spec);
}

}  // namespace moestro::model
