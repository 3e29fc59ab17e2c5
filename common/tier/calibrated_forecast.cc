#include "common/tier/calibrated_forecast.h"

#include <algorithm>

namespace moestro::tier {
namespace {

constexpr float kRateNew = 1.0F / 32;  ///< weight of the newest pass in an expert's rate
constexpr double kErrorKept = 0.999;   ///< of errors, a layer later

}  // namespace

CalibratedForecast::CalibratedForecast(int32_t layers, int32_t experts)
    : experts_(static_cast<size_t>(experts)),
      calibration_(layers),
      likely_(static_cast<size_t>(layers) * experts_),
      rate_(likely_.size()),
      known_(static_cast<size_t>(layers)) {}

void CalibratedForecast::routed(int32_t layer, std::span<const uint8_t> used) {
  calibration_.routed(layer, used);
  const size_t first = static_cast<size_t>(layer) * experts_;
  const bool told = knows(layer);
  if (told) forecast_error_ *= kErrorKept, rate_error_ *= kErrorKept;
  for (size_t e = 0; e < experts_; ++e) {
    const auto came = static_cast<float>(used[e]);
    float& rate = rate_[first + e];
    if (told) {
      forecast_error_ += (came - likely_[first + e]) * (came - likely_[first + e]);
      rate_error_ += (came - rate) * (came - rate);
    }
    rate += kRateNew * (came - rate);
  }
}

void CalibratedForecast::foresee(int32_t layer, const prediction::Forecast& forecast, bool correct) {
  for (int32_t target = 0; target < forecast.layers(); ++target) {
    const auto row = forecast.row(target);
    const int32_t ahead = forecast.distance(layer, target);
    bool known = false;
    for (size_t e = 0; e < row.size(); ++e) {
      likely_[static_cast<size_t>(target) * experts_ + e] =
          correct ? calibration_.probability(row[e], ahead) : row[e];
      known = known || row[e] > 0;
    }
    known_[static_cast<size_t>(target)] = known;
    foreseen_ = foreseen_ || known;
  }
  if (correct) calibration_.foreseen(layer, forecast);
}

void CalibratedForecast::clear() { std::ranges::fill(known_, uint8_t{0}); }

}  // namespace moestro::tier
