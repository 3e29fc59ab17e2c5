#include "common/model/architectures/architecture.h"

namespace moestro::model {
namespace {

constexpr int64_t kMxfp4Group = 32;  ///< numbers along the reduction dimension that share a scale

// Layers that see a window and layers that see everything take turns, unless layer_types says otherwise.
void set_gpt_oss_windows(ConfigReader& config, ModelSpec& spec) {
  const int64_t window = config.has("sliding_window") ? config.count("sliding_window", kPositionsMax) : 0;
  const std::vector<bool> types = read_sliding_layers(config, static_cast<int64_t>(spec.layers.size()));
  for (size_t i = 0; i < spec.layers.size() && !config.failed(); ++i) {
    const bool sliding = types.empty() ? i % 2 == 0 : types[i];
    if (sliding && window == 0)
      config.refuse(invalid_argument(config.where() + ": layers with sliding_attention need a sliding_window"));
    spec.layers[i].attention.sliding_window = sliding ? window : 0;
  }
}

// Older files say two settings twice.
void expect_equal_names(ConfigReader& config, const ModelSpec& spec, int64_t top_k) {
  if (config.count_or("experts_per_token", top_k, kExpertsMax) != top_k)
    config.refuse(invalid_argument(config.where() + ": experts_per_token differs from num_experts_per_tok"));
  const int64_t original = spec.rope.scaling == RopeSpec::Scaling::kYarn ? spec.rope.original_max_position : 0;
  if (config.has("initial_context_length") && config.count("initial_context_length", kPositionsMax) != original &&
      original > 0)
    config.refuse(invalid_argument(config.where() + ": initial_context_length differs from the original length of "
                                                    "rope_scaling"));
}

}  // namespace

// gpt-oss: a learned logit per head in every softmax of attention, windows in every second layer, biases everywhere,
// experts with a clamped SwiGLU. The router's softmax is over the chosen logits, which is the softmax over all of them
// divided by the sum of the chosen ones.
void describe_gpt_oss(ConfigReader& config, ModelSpec& spec) {
  config.count("head_dim", kHeadDimMax);  // transformers has 64 where it is missing
  if (!config.has("rope_scaling") && !config.has("rope_parameters"))
    config.refuse(invalid_argument(config.where() + ": gpt-oss needs rope_scaling (yarn, as published)"));
  DecoderBase base =
      read_decoder(config, {.rope = {.theta = 150000.0}, .norm_eps = 1e-5, .kv_heads = 8, .mxfp4 = true}, spec);
  base.attention.qkv_bias = base.attention.output_bias = config.flag_or("attention_bias", true);
  base.attention.sink_logits = true;
  MoeSpec moe = read_moe(config, "num_local_experts", "num_experts", "intermediate_size", spec.hidden);
  moe.router.logit_bias = true;
  moe.expert.bias = true;
  moe.expert.activation = Activation::kClampedSwiglu;
  moe.expert.swiglu_alpha = config.positive_or("swiglu_alpha", 1.702);
  moe.expert.swiglu_limit = config.positive_or("swiglu_limit", 7.0);
  expect_equal_names(config, spec, moe.top_k);
  if (spec.quantisation.method == Quantisation::Method::kMxfp4 &&
      (spec.hidden % kMxfp4Group != 0 || moe.expert.ffn % kMxfp4Group != 0))
    config.refuse(invalid_argument(config.where() + ": hidden_size and intermediate_size of MXFP4 experts must be "
                                                    "multiples of 32"));
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
  set_gpt_oss_windows(config, spec);
}

}  // namespace moestro::model
