#include "common/model/architectures/architecture.h"

namespace moestro::model {
namespace {

// Layers from max_window_layers on see only a window, or those that layer_types names. By default there are none.
void set_windows(ConfigReader& config, ModelSpec& spec) {
  const int64_t window =
      config.is_null("sliding_window") ? 0 : config.count_or("sliding_window", 4096, kPositionsMax);
  const int64_t from = config.count_or("max_window_layers", 62, kPositionsMax, 0);
  const std::vector<bool> types = read_sliding_layers(config, static_cast<int64_t>(spec.layers.size()));
  for (size_t i = 0; i < spec.layers.size() && !config.failed(); ++i) {
    const bool sliding = types.empty() ? static_cast<int64_t>(i) >= from : types[i];
    if (sliding && window == 0 && !types.empty())
      config.refuse(invalid_argument(config.where() + ": layer_types asks for sliding_attention without a "
                                                      "sliding_window"));
    spec.layers[i].attention.sliding_window = sliding ? window : 0;
  }
}

}  // namespace

// dots.llm1: RMSNorm over each head of q and k, the router of DeepSeek-V3.
void describe_dots1(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {}, spec);
  base.attention.qk_norm = AttentionSpec::QkNorm::kPerHead;
  base.attention.qkv_bias = base.attention.output_bias = config.flag_or("attention_bias", false);
  expect_flag(config, "use_sliding_window", false);
  expect_zero(config, "num_nextn_predict_layers");
  MoeSpec moe = read_grouped_moe(config, spec.hidden);
  moe.router.normalise = config.flag_or("norm_topk_prob", false);
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_dense_first(config, base.layers, 0), dense_ffn, spec);
  set_windows(config, spec);
}

}  // namespace moestro::model
