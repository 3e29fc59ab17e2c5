#include "common/model/architectures/architecture.h"

namespace moestro::model {

// Arctic: beside the experts, which see the layer's input before attention, a dense MLP as wide as the model after it.
// Read by its published modeling file; transformers has none.
void describe_arctic(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(
      config, {.rope = {.theta = 1e6}, .norm_eps = 1e-5, .bos = 1, .eos = 2, .null_head_dim = true}, spec);
  if (config.has("sliding_window")) base.attention.sliding_window = config.count("sliding_window", kPositionsMax);
  expect_flag(config, "attention_bias", false);
  const bool parallel = config.flag_or("parallel_attn_mlp_res", false);
  expect_flag(config, "use_residual", parallel);
  // Of training, and of how DeepSeek spreads experts.
  for (const auto* key : {"moe_train_capacity_factor", "moe_eval_capacity_factor", "moe_min_capacity"})
    config.number(key);
  for (const auto* key : {"moe_token_dropping", "enable_expert_tensor_parallelism"}) config.flag_or(key, false);
  if (config.has("quantization")) config.refuse_unsupported("quantization", "is not supported");
  if (config.has("max_sequence_length")) config.count("max_sequence_length", kPositionsMax);
  config.counts("enc_index", kLayersMax);
  MoeSpec moe = read_moe(config, "num_local_experts", "num_experts", "intermediate_size", spec.hidden);
  moe.before_attention = parallel;
  moe.shared_ffn = parallel ? spec.hidden : 0;
  const int64_t frequency = config.count_or("moe_layer_frequency", 2, kLayersMax);
  std::vector<bool> sparse(static_cast<size_t>(base.layers));
  for (size_t i = 0; i < sparse.size(); ++i) sparse[i] = static_cast<int64_t>(i + 1) % frequency == 0;
  add_layers(config, base, moe, sparse, moe.expert.ffn, spec);
}

}  // namespace moestro::model
