#pragma once
// The forecast that stands, corrected by how often such forecasts came true; how often each expert is used; and which
// of the two has lately been nearer to the truth. A device's tier and host memory use the same object.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/prediction/forecast.h"

namespace moestro::tier {

using Key = uint32_t;  ///< moe_layer * experts + expert

/// How often a predictor's forecasts came true: for each band of probability, at three distances, the share of
/// forecasts whose expert was used. A predictor that is too optimistic is corrected without copying anything.
class ForecastCalibration {
 public:
  explicit ForecastCalibration(int32_t layers);

  /// Records the forecast made at `layer` for the layers at the judged distances.
  void foreseen(int32_t layer, const prediction::Forecast& forecast);
  /// The router of `layer` has run: `used` has one flag per expert.
  void routed(int32_t layer, std::span<const uint8_t> used);
  /// The calibrated values of a row of forecasts at `distance`: the share of such forecasts that came true. 0 for 0.
  void correct(std::span<const float> row, int32_t distance, std::span<float> out) const;

 private:
  static constexpr int kBands = 16, kDistances = 3;
  struct Band {
    double told = 0, true_ones = 0;
  };
  struct Noted {
    std::vector<float> row;
    bool standing = false;
  };
  static size_t band(float p);
  static size_t distance_class(int32_t distance);

  int32_t layers_;
  std::array<std::array<Band, kBands>, kDistances> bands_;
  std::array<std::vector<Noted>, kDistances> noted_;  ///< by target layer
};

class CalibratedForecast {
 public:
  CalibratedForecast(int32_t layers, int32_t experts);

  /// The router of `layer` has run, in a step of decoding. `used`: one flag per expert.
  void routed(int32_t layer, std::span<const uint8_t> used);
  /// Replaces the forecast by one that was made at `layer` (-1: before the first). `correct` false: its figures are
  /// used unchanged and are not judged, as those of prompts.
  void foresee(int32_t layer, const prediction::Forecast& forecast, bool correct);
  /// There is no forecast for now.
  void clear();

  /// That the next pass of its layer uses the key; calibrated. 0: unknown. Meaningful if its layer is known.
  float probability(Key key) const { return likely_[key]; }
  /// Of a layer's experts.
  std::span<const float> row(int32_t layer) const {
    return std::span(likely_).subspan(static_cast<size_t>(layer) * experts_, experts_);
  }
  bool knows(int32_t layer) const { return known_[static_cast<size_t>(layer)] != 0; }
  /// Share of its layer's passes that used the key; recent passes count most.
  float rate(Key key) const { return rate_[key]; }
  /// Forecasts have lately been nearer to the truth than rates.
  bool leads() const { return foreseen_ && forecast_error_ <= rate_error_; }

 private:
  size_t experts_;
  ForecastCalibration calibration_;
  std::vector<float> likely_;   ///< [key]
  std::vector<float> rate_;     ///< [key]
  std::vector<uint8_t> known_;  ///< [layer]: the forecast covers it
  bool foreseen_ = false;       ///< there has been a forecast
  double forecast_error_ = 0, rate_error_ = 0;  ///< squared; old ones fade
};

}  // namespace moestro::tier
