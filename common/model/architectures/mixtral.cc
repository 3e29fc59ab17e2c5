#include "common/model/architectures/architecture.h"

namespace moestro::model {

// Every layer sparse; gate weights of the chosen experts always sum to 1; one window for all layers.
void describe_mixtral(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {.rope_theta = 1e6, .norm_eps = 1e-5, .kv_heads = 8}, spec);
  base.attention.sliding_window = config.count_or("sliding_window", 0, kPositionsMax);
  MoeSpec moe = read_moe(config, "num_local_experts", "num_experts", "intermediate_size", spec.hidden);
  moe.normalise_top_k = true;
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
}

}  // namespace moestro::model
