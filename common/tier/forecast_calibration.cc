#include "common/tier/forecast_calibration.h"

#include <algorithm>
#include <cmath>

namespace moestro::tier {
namespace {

constexpr int32_t kJudged[] = {1, 2, 5};  ///< distances that are noted, one of each class
constexpr double kPrior = 8;              ///< forecasts that a band is taken at its word for
constexpr double kForget = 2048;          ///< forecasts of a band after which the old count half

}  // namespace

ForecastCalibration::ForecastCalibration(int32_t layers) : layers_(layers) {
  for (auto& of_class : noted_) of_class.resize(static_cast<size_t>(layers));
}

int ForecastCalibration::band(float p) {
  return std::clamp(static_cast<int>(p * static_cast<float>(kBands)), 0, kBands - 1);
}

int ForecastCalibration::distance_class(int32_t distance) { return distance <= 1 ? 0 : distance <= 3 ? 1 : 2; }

void ForecastCalibration::foreseen(int32_t layer, const prediction::Forecast& forecast) {
  for (int c = 0; c < kDistances; ++c) {
    if (kJudged[c] > layers_) continue;
    const int32_t target = (layer + kJudged[c]) % layers_;
    Noted& noted = noted_[static_cast<size_t>(c)][static_cast<size_t>(target)];
    const auto row = forecast.row(target);
    noted.row.assign(row.begin(), row.end());
    noted.standing = true;
  }
}

void ForecastCalibration::routed(int32_t layer, std::span<const uint8_t> used) {
  for (int c = 0; c < kDistances; ++c) {
    Noted& noted = noted_[static_cast<size_t>(c)][static_cast<size_t>(layer)];
    if (!noted.standing) continue;
    noted.standing = false;
    for (size_t e = 0; e < noted.row.size(); ++e) {
      if (noted.row[e] <= 0) continue;
      Band& band_of = bands_[static_cast<size_t>(c)][static_cast<size_t>(band(noted.row[e]))];
      band_of.told += 1, band_of.true_ones += used[e];
      if (band_of.told > kForget) band_of.told /= 2, band_of.true_ones /= 2;
    }
  }
}

float ForecastCalibration::probability(float p, int32_t distance) const {
  if (p <= 0) return 0;
  const Band& of = bands_[static_cast<size_t>(distance_class(distance))][static_cast<size_t>(band(p))];
  return static_cast<float>((of.true_ones + kPrior * static_cast<double>(p)) / (of.told + kPrior));
}

}  // namespace moestro::tier
