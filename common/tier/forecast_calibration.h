#pragma once
// How often what a predictor called likely came true: for each band of probability, at three distances, the share of
// forecasts that were used. A predictor that promises too much is believed less, without one byte being moved to find
// out.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/prediction/forecast.h"

namespace moestro::tier {

class ForecastCalibration {
 public:
  explicit ForecastCalibration(int32_t layers);

  /// Notes what is said from `layer` about the layers at the distances that are judged.
  void foreseen(int32_t layer, const prediction::Forecast& forecast);
  /// The router of `layer` has spoken: `used` has one flag per expert.
  void routed(int32_t layer, std::span<const uint8_t> used);
  /// What a forecast of `p` at `distance` is worth: the share of its kind that came true. 0 for 0.
  float probability(float p, int32_t distance) const;

 private:
  static constexpr int kBands = 16, kDistances = 3;
  struct Band {
    double told = 0, true_ones = 0;
  };
  struct Noted {
    std::vector<float> row;
    bool standing = false;
  };
  static int band(float p);
  static int distance_class(int32_t distance);

  int32_t layers_;
  std::array<std::array<Band, kBands>, kDistances> bands_;
  std::array<std::vector<Noted>, kDistances> noted_;  ///< by target layer
};

}  // namespace moestro::tier
