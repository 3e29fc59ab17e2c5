#pragma once
// Logistic regression that learns from one example at a time.
//
// Each update is a Newton step with the curvature of all examples so far; older ones count less. So there is no
// learning rate to choose, and some hundred examples are enough.

#include <array>
#include <cstdint>
#include <span>

namespace moestro::prediction {

class Logistic {
 public:
  static constexpr size_t kFeaturesMax = 10;
  using Weights = std::array<double, kFeaturesMax>;

  /// The initial weights count as much as `trust` examples of unit curvature.
  Logistic(size_t features, const Weights& start, double trust);

  std::span<const double> weights() const { return std::span(weights_).first(features_); }

  /// Adds an example to the next step: features `x`, predicted probability `p`, and whether it came true.
  void note(std::span<const float> x, double p, bool came);
  /// Makes the step, which is the most expensive part of learning. After many examples it is made only at every few
  /// calls. `memory` in (0, 1]: the weight that earlier examples keep.
  void step(double memory);
  uint64_t examples() const { return examples_; }

 private:
  size_t features_ = 0;
  Weights weights_{}, gradient_{};
  std::array<double, kFeaturesMax * kFeaturesMax> curvature_{};  ///< [row][column], the lower half
  double trust_ = 1;
  double kept_ = 1;    ///< of what was learned before, since the last step
  int32_t waiting_ = 0;  ///< calls since the last step
  uint64_t examples_ = 0;
};

}  // namespace moestro::prediction
