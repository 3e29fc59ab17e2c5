#pragma once
// Cosines and sines of rotary position embedding, as Hugging Face transformers computes them (modeling_rope_utils.py).

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/model_spec.h"

namespace moestro::engine {

/// Inverse frequencies [rotary_dim / 2] at sequence length `length`. Only dynamic scaling uses the length, and
/// longrope, where it is that of the longest sequence.
std::vector<float> inverse_frequencies(const model::RopeSpec& rope, int64_t length);
/// The factor of cosines and sines: 1 except for yarn and longrope.
double attention_factor(const model::RopeSpec& rope, int64_t length = 1);

class RopeTables {
 public:
  RopeTables() = default;
  /// Rows for positions [0, positions). With dynamic scaling, position p has the frequencies of length p + 1. This is
  /// what decoding token by token with a cache gives, and it does not depend on how a prompt is cut into chunks. With
  /// longrope all positions have the long factors if there are more than the model's original length, else the short
  /// ones: keys that are cached stay right when a sequence grows.
  RopeTables(const model::RopeSpec& rope, int64_t positions);

  /// Appends the row of any position. Beyond the table's end, angles are computed in double: there is no reference for
  /// their rounding, and the difference of two positions stays exact at any distance. Not with dynamic scaling.
  void append(int64_t position, std::vector<float>& cos, std::vector<float>& sin) const;

  std::span<const float> cos(int64_t position) const { return row(cos_, position); }
  std::span<const float> sin(int64_t position) const { return row(sin_, position); }

 private:
  std::span<const float> row(const std::vector<float>& table, int64_t position) const {
    return std::span(table).subspan(static_cast<size_t>(position * half_), static_cast<size_t>(half_));
  }
  int64_t half_ = 0, positions_ = 0;
  float factor_ = 1.0f;
  std::vector<float> inverse_;
  std::vector<float> cos_, sin_;
};

}  // namespace moestro::engine
