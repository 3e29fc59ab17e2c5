#pragma once
// Bytes and parameters of a model's parts in given precisions: what a pack of it would hold, and what a step reads.

#include <cstdint>
#include <vector>

#include "common/dtype.h"
#include "common/expert_layout.h"
#include "common/model/mixer.h"

namespace moestro::planner {

struct Precisions {
  DType experts = DType::kBF16;
  DType dense = DType::kBF16;  ///< of matrices; the embedding, routers and vectors stay bf16 with int8, int4 and blocks
  DType kv = DType::kF32;      ///< f32, bf16, f16 or int8
};

struct LayerSizes {
  double attention_parameters = 0;  ///< of the mixer's matrices
  double output_width = 0;          ///< numbers of a row before the output projection
  double router_parameters = 0;
  double mlp_parameters = 0;        ///< of a dense layer's MLP, or of a shared expert
  double row_floats = 0;            ///< numbers that norms, rotation and sums touch for each row
  double pair_operations = 0;       ///< of attention, for one query and one visible position
  double kv_bytes_per_token = 0;    ///< of its own positions, and with cross-attention of the memory's as well
  /// Of attention over an encoder's memory: what makes a source's memory, and one query and one of its positions.
  double memory_parameters = 0, memory_pair_operations = 0;
  bool encoder = false;             ///< rows of sources go through it, and no others
  int64_t window = 0;               ///< positions that a query sees; 0: all
  bool sparse = false;              ///< it has experts
  bool operator==(const LayerSizes&) const = default;
};

struct ModelSizes {
  Precisions precisions;
  std::vector<LayerSizes> layers;
  int64_t hidden = 0, vocab = 0, max_position = 0;
  int64_t experts = 0, top_k = 0, moe_layers = 0;  ///< experts: of one layer
  double expert_parameters = 0, head_parameters = 0;
  uint64_t expert_bytes = 0;        ///< of one blob
  uint64_t dense_bytes = 0;         ///< of all other weights
  std::vector<uint64_t> dense_layer_bytes = {};  ///< of them, those of each layer
  uint64_t kv_block_bytes = 0;      ///< of kKvTokensPerBlock tokens in all layers
  uint64_t state_bytes = 0;         ///< of what all layers keep of a sequence as a whole

  bool has_encoder() const { return !layers.empty() && layers.front().encoder; }
  int64_t all_experts() const { return experts * moe_layers; }
  /// Of the layers that a step goes through: `prompt`, with an encoder, through that, else through the decoder.
  int64_t experts_on_the_way(bool prompt) const;
  uint64_t experts_bytes() const { return expert_bytes * static_cast<uint64_t>(all_experts()); }
  double kv_bytes_per_token() const;
  /// Of that many parameters of dense matrices.
  double weight_bytes(double parameters) const;
  /// Of whole blocks for each sequence of `tokens`.
  uint64_t kv_bytes(int64_t sequences, int64_t tokens) const;
};

/// Calls `use(layer, count)` for every run of equal layers.
template <class Use>
void each_run(const ModelSizes& sizes, const Use& use) {
  for (size_t i = 0, same = 1; i < sizes.layers.size(); i += same) {
    for (same = 1; i + same < sizes.layers.size() && sizes.layers[i + same] == sizes.layers[i];) ++same;
    use(sizes.layers[i], static_cast<double>(same));
  }
}

inline constexpr int64_t kKvTokensPerBlock = model::kKvBlockTokens;

/// kUnsupported: it has no experts. kInvalidArgument: a KV precision that there is not.
Result<ModelSizes> model_sizes(const model::ModelDescription& model, const Precisions& precisions);

/// How many of `experts` are chosen by at least one of `rows` rows that each choose `top_k` different ones, if all
/// choices are equally likely: E (1 - (1 - k/E)^n).
double distinct_experts(double experts, double top_k, double rows);

}  // namespace moestro::planner
