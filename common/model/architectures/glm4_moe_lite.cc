#include "common/model/architectures/architecture.h"
#include "common/model/strict_json.h"

namespace moestro::model {
namespace {

// mlp_layer_types names every layer; without it the first ones are dense.
std::vector<bool> read_sparse(ConfigReader& config, int64_t layers) {
  std::vector<bool> sparse = read_dense_first(config, layers, 1);
  const std::vector<std::string> types = config.texts("mlp_layer_types");
  if (types.empty()) return sparse;
  if (static_cast<int64_t>(types.size()) != layers) {
    config.refuse(invalid_argument(config.where() + ": mlp_layer_types must name every layer"));
    return sparse;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    sparse[i] = types[i] == "sparse";
    if (!sparse[i] && types[i] != "dense")
      config.refuse_unsupported("mlp_layer_types", in_quotes(types[i]) + " is not supported (dense and sparse are)");
  }
  return sparse;
}

}  // namespace

// GLM-4.7-Flash: the latent attention of DeepSeek-V3 and its router.
void describe_glm4_moe_lite(ConfigReader& config, ModelSpec& spec) {
  DecoderBase base = read_decoder(config, {.norm_eps = 1e-5, .latent = true, .bos = 0, .eos = 1}, spec);
  base.latent->interleaved = config.flag_or("rope_interleave", true);
  spec.mtp_layers = config.count_or("num_nextn_predict_layers", 0, kLayersMax, 0);
  MoeSpec moe = read_grouped_moe(config, spec.hidden, {.scale = 1.8});
  moe.router.normalise = config.flag_or("norm_topk_prob", true);
  const int64_t dense_ffn = config.count("intermediate_size", kFfnMax);
  add_layers(config, base, moe, read_sparse(config, base.layers), dense_ffn, spec);
}

}  // namespace moestro::model
