#include "common/model/architectures/architecture.h"

namespace moestro::model {

// Granite MoE, and with a shared expert: factors of the embedding, of q.k, of what blocks add, and of the logits. The
// factor of what experts add is part of their weights.
void describe_granitemoe(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {.bos = 1, .eos = 2}, spec);
  base.attention.qkv_bias = base.attention.output_bias = config.flag_or("attention_bias", false);
  base.attention.scale = config.positive_or("attention_multiplier", 1.0);
  spec.embedding_scale = config.positive_or("embedding_multiplier", 1.0);
  spec.residual_scale = config.positive_or("residual_multiplier", 1.0);
  spec.logits_divisor = config.positive_or("logits_scaling", 1.0);
  expect_layer_types(config, base.layers, false);
  MoeSpec moe = read_moe(config, "num_local_experts", "num_experts", "intermediate_size", spec.hidden);
  moe.router.scale = spec.residual_scale;
  if (spec.architecture == "GraniteMoeSharedForCausalLM")
    moe.shared_ffn = config.count_or("shared_intermediate_size", 0, kFfnMax, 0);
  else
    expect_zero(config, "shared_intermediate_size");
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
}

}  // namespace moestro::model
