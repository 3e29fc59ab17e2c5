#include "common/planner/model_sizes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/dense_layout.h"
#include "common/model/tensor_names.h"

namespace moestro::planner {
namespace {

/// As packs have it: neither the embedding, which is looked up, nor the router, which decides, is quantised.
bool is_matrix_of_a_product(const model::DenseTensor& t) {
  const auto within = [&](const char* part) { return t.name.find(part) != std::string::npos; };
  return t.shape.size() == 2 &&
         (within(".attn.") || within(".cross.") || within(".mlp.") || within(".shared.") ||
          t.name.starts_with("head."));
}

uint64_t bytes_of(const model::DenseTensor& t, DType dense) {
  const DType rest = is_quantised(dense) || is_blocks(dense) ? DType::kBF16 : computed_as(dense);
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < t.shape.size(); ++i) rows *= t.shape[i];
  const int64_t bytes = dense_bytes(is_matrix_of_a_product(t) ? dense : rest, rows, t.shape.back());
  return static_cast<uint64_t>(round_up(bytes, kPartAlign));
}

LayerSizes layer_sizes(const model::ModelSpec& spec, const model::LayerSpec& layer, DType kv) {
  const model::MixerSize mixer = model::mixer_size(spec, layer);
  const auto hidden = static_cast<double>(spec.hidden);
  LayerSizes s;
  s.attention_parameters = static_cast<double>(mixer.parameters);
  s.pair_operations = static_cast<double>(mixer.pair_operations);
  s.memory_parameters = static_cast<double>(mixer.memory_parameters);
  s.memory_pair_operations = static_cast<double>(mixer.memory_pair_operations);
  s.encoder = layer.stack == model::LayerSpec::Stack::kEncoder;
  s.output_width = static_cast<double>(mixer.output_width);
  s.kv_bytes_per_token =
      static_cast<double>(model::kv_block_bytes(layer.kv, kv)) / static_cast<double>(kKvTokensPerBlock);
  s.window = mixer.window;
  s.row_floats = 4 * hidden + static_cast<double>(mixer.moved_floats);  // two norms, two sums
  s.sparse = layer.moe_index.has_value();
  if (s.sparse) {
    s.router_parameters = hidden * static_cast<double>(layer.moe.experts);
    s.mlp_parameters = 3 * hidden * static_cast<double>(layer.moe.shared_ffn);
    s.row_floats += hidden * static_cast<double>(layer.moe.top_k) + static_cast<double>(layer.moe.experts);
  } else {
    s.mlp_parameters = (spec.mlp_gated ? 3 : 2) * hidden * static_cast<double>(layer.dense_ffn);
  }
  return s;
}

}  // namespace

double ModelSizes::kv_bytes_per_token() const {
  double bytes = 0;
  for (const LayerSizes& layer : layers) bytes += layer.kv_bytes_per_token;
  return bytes;
}

int64_t ModelSizes::experts_on_the_way(bool prompt) const {
  if (!has_encoder()) return all_experts();
  return experts * std::ranges::count_if(layers, [&](const LayerSizes& l) { return l.sparse && l.encoder == prompt; });
}

double ModelSizes::weight_bytes(double parameters) const {
  return parameters * static_cast<double>(moestro::dense_bytes(precisions.dense, 1, hidden)) /
         static_cast<double>(hidden);
}

uint64_t ModelSizes::kv_bytes(int64_t sequences, int64_t tokens) const {
  return static_cast<uint64_t>(sequences * ceil_div(tokens, kKvTokensPerBlock)) * kv_block_bytes;
}

Result<ModelSizes> model_sizes(const model::ModelDescription& model, const Precisions& precisions) {
  const model::ModelSpec& spec = model.spec;
  if (spec.moe_layers() == 0) return unsupported("this model has no experts");
  if (dtype_bytes(precisions.kv) == 0)
    return invalid_argument("a KV cache cannot be " + std::string(dtype_name(precisions.kv)));
  const model::MoeSpec& moe = spec.moe();
  ModelSizes sizes;
  sizes.precisions = precisions;
  sizes.hidden = spec.hidden, sizes.vocab = spec.vocab, sizes.max_position = spec.max_position;
  sizes.experts = moe.experts, sizes.top_k = moe.top_k, sizes.moe_layers = spec.moe_layers();
  sizes.expert_parameters = static_cast<double>(moe.expert.matrices * moe.expert.hidden * moe.expert.ffn);
  sizes.expert_bytes =
      static_cast<uint64_t>(
          ExpertLayout(moe.expert.hidden, moe.expert.ffn, precisions.experts, moe.expert.bias, moe.expert.is_gated())
              .bytes());
  sizes.head_parameters = static_cast<double>(spec.hidden * spec.vocab);
  sizes.dense_layer_bytes.resize(spec.layers.size());
  for (const model::DenseTensor& t : model.dense) {
    sizes.dense_bytes += bytes_of(t, precisions.dense);
    if (const auto layer = model::layer_of_tensor(t.name); layer && *layer < sizes.dense_layer_bytes.size())
      sizes.dense_layer_bytes[*layer] += bytes_of(t, precisions.dense);
  }
  for (const model::LayerSpec& layer : spec.layers) {
    sizes.layers.push_back(layer_sizes(spec, layer, precisions.kv));
    sizes.kv_block_bytes += static_cast<uint64_t>(model::kv_block_bytes(layer.kv, precisions.kv));
    sizes.state_bytes += static_cast<uint64_t>(model::state_bytes(layer));
  }
  return sizes;
}

double distinct_experts(double experts, double top_k, double rows) {
  if (experts <= 0 || rows <= 0) return 0;
  return experts * (1 - std::pow(1 - std::min(1.0, top_k / experts), rows));
}

}  // namespace moestro::planner
