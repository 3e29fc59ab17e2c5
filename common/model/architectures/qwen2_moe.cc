#include "common/model/architectures/architecture.h"

namespace moestro::model {
namespace {

// Which layers see only a window. Without layer_types: every second one, from the first, below max_window_layers.
void set_windows(ConfigReader& config, ModelSpec& spec) {
  const bool use = config.flag_or("use_sliding_window", false);
  if (use && config.is_null("sliding_window"))
    config.refuse(invalid_argument(config.where() + ": sliding_window is null while use_sliding_window is true"));
  const int64_t window =
      config.is_null("sliding_window") ? 0 : config.count_or("sliding_window", 4096, kPositionsMax, 0);
  const int64_t below = config.count_or("max_window_layers", 28, kPositionsMax, 0);
  const std::vector<bool> types = read_sliding_layers(config, static_cast<int64_t>(spec.layers.size()));
  if (use && window == 0)
    config.refuse(invalid_argument(config.where() + ": use_sliding_window needs a sliding_window above 0"));
  for (size_t i = 0; i < spec.layers.size() && !config.failed(); ++i) {
    const bool sliding = types.empty() ? use && i % 2 == 0 && static_cast<int64_t>(i) < below : types[i];
    if (sliding && !use)
      config.refuse(invalid_argument(config.where() +
                                     ": layer_types asks for sliding_attention while use_sliding_window is false"));
    spec.layers[i].attention.sliding_window = sliding ? window : 0;
  }
}

}  // namespace

// A shared expert with its gate beside the routed ones; dense layers may stand among the sparse ones.
void describe_qwen2_moe(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {.kv_heads = 16}, spec);
  base.attention.qkv_bias = config.flag_or("qkv_bias", true);
  expect_flag(config, "attention_bias", false);
  expect_flag(config, "use_qk_norm", false);
  MoeSpec moe = read_moe(config, "num_experts", "", "moe_intermediate_size", spec.hidden);
  moe.router.normalise = config.flag_or("norm_topk_prob", false);
  moe.shared_ffn = config.count_or("shared_expert_intermediate_size", 5632, kFfnMax);
  moe.shared_gate = true;
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_sparse_layers(config, base.layers), dense_ffn, spec);
  set_windows(config, spec);
}

}  // namespace moestro::model
