#include "common/model/architectures/architecture.h"

namespace moestro::model {

// Every layer sparse; gate weights of the chosen experts always sum to 1; one window for all layers.
void describe_mixtral(ConfigReader& config, ModelSpec& spec) {
  const DecoderDefaults defaults{
      .rope = {.theta = 1e6}, .norm_eps = 1e-5, .kv_heads = 8, .bos = 1, .eos = 2, .null_head_dim = true};
  DecoderBase base = read_decoder(config, defaults, spec);
  if (config.has("sliding_window")) base.attention.sliding_window = config.count("sliding_window", kPositionsMax);
  for (const auto* key : {"attention_bias", "qkv_bias", "use_qk_norm"}) expect_flag(config, key, false);
  expect_zero(config, "shared_expert_intermediate_size");
  expect_layer_types(config, base.layers, base.attention.sliding_window > 0);
  MoeSpec moe = read_moe(config, "num_local_experts", "num_experts", "intermediate_size", spec.hidden);
  moe.router.normalise = true;
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
}

}  // namespace moestro::model
