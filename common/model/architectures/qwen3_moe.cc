#include "common/model/architectures/architecture.h"

namespace moestro::model {

// RMSNorm over each head of q and k. transformers reads max_window_layers for no layer: the window holds for all or none.
void describe_qwen3_moe(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {.kv_heads = 4}, spec);
  base.attention.qk_norm = AttentionSpec::QkNorm::kPerHead;
  base.attention.qkv_bias = base.attention.output_bias = config.flag_or("attention_bias", false);
  const int64_t window = config.count_or("sliding_window", 4096, kPositionsMax, 0);
  config.count_or("max_window_layers", 0, kPositionsMax, 0);
  if (config.flag_or("use_sliding_window", false)) {
    if (window == 0) config.refuse(invalid_argument(config.where() + ": use_sliding_window needs a sliding_window above 0"));
    base.attention.sliding_window = window;
  }
  MoeSpec moe = read_moe(config, "num_experts", "num_local_experts", "moe_intermediate_size", spec.hidden);
  moe.normalise_top_k = config.flag_or("norm_topk_prob", false);
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_sparse_layers(config, base.layers), dense_ffn, spec);
}

}  // namespace moestro::model
