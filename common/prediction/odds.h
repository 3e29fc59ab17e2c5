#pragma once
// Probabilities as log-odds, in which independent evidence adds up.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace moestro::prediction {

inline constexpr float kOddsMax = 9.0F;  ///< e^-9: one chance in 8,000

/// log2 with an error below 1e-4, without a call, because forecasts compute it for every expert of every layer.
inline float fast_log2(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto exponent = static_cast<float>(static_cast<int32_t>(bits >> 23) - 127);
  const auto m = std::bit_cast<float>((bits & 0x007FFFFFU) | 0x3F800000U) - 1.0F;
  // Least squares of log2(1 + m) on [0, 1), exact at both ends.
  return exponent + m * (1.4418359F + m * (-0.70837215F + m * (0.41355505F + m * (-0.19126251F + m * 0.044243741F))));
}

/// log(p / (1 - p)), within +-kOddsMax.
inline float odds(float p) {
  constexpr float kLeast = 1.234e-4F;
  const float q = std::clamp(p, kLeast, 1 - kLeast);
  return 0.69314718F * (fast_log2(q) - fast_log2(1 - q));
}

inline float chance(float odds) { return 1.0F / (1.0F + std::exp(-odds)); }

}  // namespace moestro::prediction
