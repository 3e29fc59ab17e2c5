#pragma once
// What is likely to be needed soon: for every MoE layer, the probability that its next pass uses each expert.
//
// Seen from layer l, later layers are still to come in this iteration; l itself and earlier layers come in the next
// one. So every layer has exactly one next pass, and a forecast is one [layers, experts] table.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace moestro::prediction {

class Forecast {
 public:
  Forecast() = default;
  Forecast(int32_t layers, int32_t experts)
      : layers_(layers), experts_(experts), cells_(static_cast<size_t>(layers) * static_cast<size_t>(experts), 0.0F) {}

  int32_t layers() const { return layers_; }
  int32_t experts() const { return experts_; }
  /// MoE layers until the next pass of `target`, seen from `layer`: 1 to layers().
  int32_t distance(int32_t layer, int32_t target) const {
    return target > layer ? target - layer : target - layer + layers_;
  }

  /// Probabilities in [0, 1] that at least one token of the step uses the expert; 0: unknown.
  std::span<float> row(int32_t layer) {
    return std::span(cells_).subspan(static_cast<size_t>(layer) * static_cast<size_t>(experts_),
                                     static_cast<size_t>(experts_));
  }
  std::span<const float> row(int32_t layer) const {
    return std::span(cells_).subspan(static_cast<size_t>(layer) * static_cast<size_t>(experts_),
                                     static_cast<size_t>(experts_));
  }
  void clear() { std::fill(cells_.begin(), cells_.end(), 0.0F); }

 private:
  int32_t layers_ = 0, experts_ = 0;
  std::vector<float> cells_;
};

}  // namespace moestro::prediction
