#include "common/model/architectures/architecture.h"

namespace moestro::model {

// Phi-3.5-MoE: LayerNorm with biases, two experts chosen by SparseMixer, LongRoPE, perhaps a bias of the head.
void describe_phimoe(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(
      config, {.rope = {.theta = 1e6, .own_mscales = true}, .norm_eps = 1e-5, .kv_heads = 8, .bos = 1, .eos = 2}, spec);
  if (spec.rope.scaling != RopeSpec::Scaling::kNone && spec.rope.scaling != RopeSpec::Scaling::kLongrope)
    config.refuse_unsupported("rope_scaling", "other than longrope is not supported with Phi-3.5-MoE");
  spec.norm = ModelSpec::Norm::kLayer;
  spec.norm_bias = true;
  spec.head_bias = config.flag_or("lm_head_bias", false);
  base.attention.qkv_bias = base.attention.output_bias = config.flag_or("attention_bias", false);
  if (config.has("sliding_window")) base.attention.sliding_window = config.count("sliding_window", kPositionsMax);
  config.number("input_jitter_noise");  // in training
  MoeSpec moe = read_moe(config, "num_local_experts", "num_experts", "intermediate_size", spec.hidden);
  if (!config.failed() && (moe.top_k != 2 || moe.experts < 2))
    config.refuse_unsupported("num_experts_per_tok", "other than 2 is not supported: SparseMixer chooses two");
  moe.router.scores = RouterSpec::Scores::kSparseMixer;
  moe.router.jitter = config.number_or("router_jitter_noise", 0.01);
  if (moe.router.jitter < 0 || moe.router.jitter > 1)
    config.refuse(invalid_argument(config.where() + ": router_jitter_noise must be within 0 and 1"));
  moe.router.normalise = false;
  add_layers(config, base, moe, std::vector<bool>(static_cast<size_t>(base.layers), true), 0, spec);
}

}  // namespace moestro::model
