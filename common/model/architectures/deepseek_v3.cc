#include "common/model/architectures/architecture.h"

namespace moestro::model {

// DeepSeek-V3 and R1, and Kimi-K2: latent attention, shared experts, a sigmoid router with a bias for the choice, and
// layers after the last that predict further tokens.
void describe_deepseek_v3(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {.latent = true, .bos = 0, .eos = 1}, spec);
  base.latent->interleaved = config.flag_or("rope_interleave", true);
  spec.mtp_layers = config.count_or("num_nextn_predict_layers", 0, kLayersMax, 0);
  MoeSpec moe = read_grouped_moe(config, spec.hidden, {.scale = 2.5, .groups = 8, .groups_kept = 4});
  moe.router.normalise = config.flag_or("norm_topk_prob", true);
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_dense_first(config, base.layers, 3), dense_ffn, spec);
}

}  // namespace moestro::model
