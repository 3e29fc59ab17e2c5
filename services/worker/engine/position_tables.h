#pragma once
// What encoder-decoder models know of positions: biases of scores (T5) and sinusoids added to the embedding (NLLB).

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/model_spec.h"

namespace moestro::engine {

/// The bucket of a distance: the key's position minus the query's. `both_ways`: an encoder's, with a half of the
/// buckets for keys behind the query; else those have bucket 0. In f32, as transformers computes it.
int64_t bias_bucket(const model::RelativeBias& bias, int64_t distance, bool both_ways);

/// kernels::AttentionShape::position_bias of a learned table [buckets, heads].
std::vector<float> expand_bias(const model::RelativeBias& bias, std::span<const float> table, int64_t heads,
                               bool both_ways);

/// Sinusoids of a model's positions, counted from its padding token's id + 1; a padding token has zeros. In f32, as
/// transformers computes them.
class Sinusoids {
 public:
  Sinusoids() = default;
  explicit Sinusoids(const model::ModelSpec& spec);  ///< empty if the model has none
  bool empty() const { return frequencies_.empty(); }
  /// Appends the numbers that are added to the embeddings of a step's tokens. Padding tokens in a source are not
  /// counted; those in a target are, as transformers has it token by token.
  void append(std::span<const int32_t> ids, std::span<const int32_t> positions, bool sources,
              std::vector<float>& to) const;

 private:
  void append(int64_t position, std::vector<float>& to) const;
  TokenId pad_ = -1;
  std::vector<float> frequencies_;  ///< half as many as a hidden state has numbers: sines, then cosines
};

}  // namespace moestro::engine
