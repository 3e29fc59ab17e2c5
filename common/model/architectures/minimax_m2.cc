#include "common/model/architectures/architecture.h"

namespace moestro::model {
namespace {

// Settings of the model's predecessors that published files still name. Each has one value here.
void expect_plain_layers(ConfigReader& config) {
  for (const int64_t type : config.counts("attn_type_list", 1))
    if (type != 1) config.refuse_unsupported("attn_type_list", "with layers of linear attention is not supported");
  for (const auto* key :
       {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"})
    if (config.number(key).value_or(1.0) != 1.0) config.refuse_unsupported(key, "other than 1 is not supported");
  expect_text(config, "qk_norm_type", "per_layer");
  expect_text(config, "scoring_func", "sigmoid");
  for (const auto* key : {"use_qk_norm", "use_routing_bias"}) expect_flag(config, key, true);
  expect_zero(config, "shared_intermediate_size");
  if (config.has("sliding_window")) config.refuse_unsupported("sliding_window", "is not supported for MiniMax-M2");
  // Of parts that are not there: no shared expert, no dense layer, no layers after the last.
  for (const auto* key : {"mlp_intermediate_size", "mtp_transformer_layers", "num_mtp_modules"})
    if (config.has(key)) config.count_or(key, 0, kFfnMax, 0);
  if (config.has("shared_moe_mode")) config.text_or("shared_moe_mode", "");
  if (config.has("use_mtp")) config.flag_or("use_mtp", false);
}

}  // namespace

// RMSNorm over the whole of q and of k, a part of each head rotated, sigmoid scores with a bias for the choice. Older
// files say how much is rotated as rotary_dim.
void describe_minimax_m2(ConfigReader& config, ModelSpec& spec) {
  const auto head_dim = static_cast<double>(config.count("head_dim", kHeadDimMax));
  const double rotated =
      config.has("rotary_dim") ? static_cast<double>(config.count("rotary_dim", kHeadDimMax)) / head_dim : 1.0;
  DecoderBase base = read_decoder(
      config, {.rope = {.theta = 5e6, .partial_rotary = rotated}, .kv_heads = 8, .bos = 200034, .eos = 200020}, spec);
  base.attention.qk_norm = AttentionSpec::QkNorm::kFullWidth;
  expect_plain_layers(config);
  expect_layer_types(config, base.layers, false);
  MoeSpec moe = read_moe(config, "num_local_experts", "num_experts", "intermediate_size", spec.hidden);
  moe.router.scores = RouterSpec::Scores::kSigmoid;
  moe.router.choice_bias = true;
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
}

}  // namespace moestro::model
