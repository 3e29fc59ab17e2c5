#include "common/model/architectures/architecture.h"
#include "common/model/strict_json.h"

namespace moestro::model {

// DeepSeek-V2 and V2-Lite: latent attention, shared experts, and a softmax router that may be limited to some groups.
void describe_deepseek_v2(ConfigReader& config, ModelSpec& spec) {
  const DecoderBase base =
      read_decoder(config, {.latent = true, .bos = 1, .eos = 2, .null_head_dim = true}, spec);
  for (const auto* key : {"mlp_bias", "norm_topk_prob"}) expect_flag(config, key, false);
  expect_text(config, "scoring_func", "softmax");
  MoeSpec moe = read_shared_moe(config, spec.hidden);
  moe.router.normalise = false;
  moe.router.group_best = 1;
  const std::string method = config.text_or("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    read_groups(config, moe);
  } else if (method == "greedy") {
    for (const auto* key : {"n_group", "topk_group"})
      if (config.has(key)) config.count(key, kExpertsMax);  // of no use then
  } else {
    config.refuse_unsupported("topk_method",
                              in_quotes(method) + " is not supported (greedy and group_limited_greedy are)");
  }
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_dense_first(config, base.layers, 0), dense_ffn, spec);
}

}  // namespace moestro::model
