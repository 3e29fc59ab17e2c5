#include "common/tier/calibrated_forecast.h"

#include <algorithm>

namespace moestro::tier {
namespace {

constexpr int32_t kJudged[] = {1, 2, 5};  ///< distances that are noted, one of each class
constexpr double kPrior = 8;              ///< forecasts that a band is taken at its word for
constexpr double kForget = 2048;          ///< forecasts of a band after which the old count half
constexpr float kRateNew = 1.0F / 32;  ///< weight of the newest pass in an expert's rate
constexpr double kErrorKept = 0.999;   ///< of errors, a layer later

}  // namespace

ForecastCalibration::ForecastCalibration(int32_t layers) : layers_(layers) {
  for (auto& of_class : noted_) of_class.resize(static_cast<size_t>(layers));
}

size_t ForecastCalibration::band(float p) {
  return static_cast<size_t>(std::clamp(static_cast<int>(p * static_cast<float>(kBands)), 0, kBands - 1));
}

size_t ForecastCalibration::distance_class(int32_t distance) { return distance <= 1 ? 0 : distance <= 3 ? 1 : 2; }

void ForecastCalibration::foreseen(int32_t layer, const prediction::Forecast& forecast) {
  for (size_t c = 0; c < kDistances; ++c) {
    if (kJudged[c] > layers_) continue;
    const int32_t target = (layer + kJudged[c]) % layers_;
    Noted& noted = noted_[c][static_cast<size_t>(target)];
    const auto row = forecast.row(target);
    noted.row.assign(row.begin(), row.end());
    noted.standing = true;
  }
}

void ForecastCalibration::routed(int32_t layer, std::span<const uint8_t> used) {
  for (size_t c = 0; c < kDistances; ++c) {
    Noted& noted = noted_[c][static_cast<size_t>(layer)];
    if (!noted.standing) continue;
    noted.standing = false;
    for (size_t e = 0; e < noted.row.size(); ++e) {
      if (noted.row[e] <= 0) continue;
      Band& band_of = bands_[c][band(noted.row[e])];
      band_of.told += 1, band_of.true_ones += used[e];
      if (band_of.told > kForget) band_of.told /= 2, band_of.true_ones /= 2;
    }
  }
}

void ForecastCalibration::correct(std::span<const float> row, int32_t distance, std::span<float> out) const {
  const auto& bands = bands_[distance_class(distance)];
  for (size_t e = 0; e < row.size(); ++e) {
    const float p = row[e];
    const Band& of = bands[band(p)];
    out[e] = p <= 0 ? 0 : static_cast<float>((of.true_ones + kPrior * static_cast<double>(p)) / (of.told + kPrior));
  }
}

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
    const auto likely = std::span(likely_).subspan(static_cast<size_t>(target) * experts_, experts_);
    if (correct) calibration_.correct(row, forecast.distance(layer, target), likely);
    else std::ranges::copy(row, likely.begin());
    const bool known = std::ranges::any_of(row, [](float p) { return p > 0; });
    known_[static_cast<size_t>(target)] = known;
    foreseen_ = foreseen_ || known;
  }
  if (correct) calibration_.foreseen(layer, forecast);
}

void CalibratedForecast::clear() { std::ranges::fill(known_, uint8_t{0}); }

}  // namespace moestro::tier
