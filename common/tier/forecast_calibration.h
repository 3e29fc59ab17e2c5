#pragma once
// How often a predictor's forecasts came true: for each band of probability, at three distances, the share of forecasts
// whose expert was used. A predictor that is too optimistic is corrected without copying anything.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/prediction/forecast.h"

namespace moestro::tier {

class ForecastCalibration {
 public:
  explicit ForecastCalibration(int32_t layers);

  /// Records the forecast made at `layer` for the layers at the judged distances.
  void foreseen(int32_t layer, const prediction::Forecast& forecast);
  /// The router of `layer` has run: `used` has one flag per expert.
  void routed(int32_t layer, std::span<const uint8_t> used);
  /// The calibrated value of a forecast `p` at `distance`: the share of such forecasts that came true. 0 for 0.
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
