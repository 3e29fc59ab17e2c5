#include "common/model/architectures/architecture.h"

namespace moestro::model {
namespace {

// Layers from one index to another, in steps, have experts.
std::vector<bool> read_ernie_layers(ConfigReader& config, int64_t layers) {
  const int64_t start = config.count_or("moe_layer_start_index", 1, kLayersMax, 0);
  const int64_t end = config.number("moe_layer_end_index") == -1.0
                          ? layers - 1
                          : config.count_or("moe_layer_end_index", layers - 1, kLayersMax, 0);
  const int64_t interval = config.count_or("moe_layer_interval", 1, kLayersMax);
  std::vector<bool> sparse(static_cast<size_t>(layers));
  for (int64_t i = start; i < layers && i <= end; ++i) sparse[static_cast<size_t>(i)] = (i + 1) % interval == 0;
  return sparse;
}

// Settings of training and of other programs that published files still name.
void expect_plain_ernie(ConfigReader& config) {
  expect_flag(config, "use_bias", false);
  expect_text(config, "moe_gate", "topk");
  for (const auto* key : {"moe_use_aux_free", "use_rmsnorm", "use_rope"}) expect_flag(config, key, true);
  for (const auto* key : {"rope_3d", "moe_use_hard_gate"}) expect_flag(config, key, false);
  for (const auto* key : {"compression_ratio", "moe_aux_loss_lambda", "hidden_dropout_prob"}) config.number(key);
  if (config.has("moe_capacity")) config.counts("moe_capacity", kExpertsMax);
  // transformers divides by at least this; a sum of weights of a softmax that is so small has none to give.
  if (const double least = config.number_or("moe_norm_min", 1e-12); least > 1e-6 || least < 0.0)
    config.refuse_unsupported("moe_norm_min", "above 1e-6 is not supported");
}

}  // namespace

// ERNIE 4.5: pairs that RoPE rotates are adjacent, a bias chooses among the scores of a softmax, and the router is f32.
void describe_ernie4_5_moe(ConfigReader& config, ModelSpec& spec) {
  const DecoderDefaults defaults{
      .rope = {.theta = 500000.0}, .norm_eps = 1e-5, .kv_heads = 4, .bos = 1, .eos = 2, .tied = true};
  DecoderBase base = read_decoder(config, defaults, spec);
  spec.rope.pairs_adjacent = true;
  spec.mtp_layers = config.count_or("num_nextn_predict_layers", 0, kLayersMax, 0);
  expect_plain_ernie(config);
  MoeSpec moe;
  moe.experts = config.count("moe_num_experts", kExpertsMax);
  moe.top_k = config.count("moe_k", kExpertsMax);
  if (moe.top_k > moe.experts)
    config.refuse(invalid_argument(config.where() + ": moe_k is above moe_num_experts"));
  moe.expert.hidden = spec.hidden;
  moe.expert.ffn = config.count("moe_intermediate_size", kFfnMax);
  moe.router.choice_bias = true;
  moe.shared_ffn = moe.expert.ffn * config.count_or("moe_num_shared_experts", 2, kExpertsMax, 0);
  if (moe.shared_ffn > kFfnMax)
    config.refuse(invalid_argument(config.where() + ": moe_num_shared_experts times moe_intermediate_size is above " +
                                   std::to_string(kFfnMax)));
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_ernie_layers(config, base.layers), dense_ffn, spec);
}

}  // namespace moestro::model
