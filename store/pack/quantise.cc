#include "store/pack/quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "common/check.h"
#include "common/float16.h"
#include "store/pack/finite.h"
#include "store/pack/fit_int4.h"

namespace moestro::store {
namespace {

// To the nearest whole number, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction. A call of
// nearbyint for each value would keep the loop from being vectorised.
float round_even(float x) {
  constexpr float kNoFraction = 12582912.0f;
  return (x + kNoFraction) - kNoFraction;
}

// The least bf16 that is >= amax / 127, so that the largest value of the group fits.
uint16_t int8_scale(float amax) {
  uint16_t bits = f32_to_bf16(amax / 127.0f);
  while (bf16_to_f32(bits) * 127.0f < amax && bits < 0x7f7fu)
    ++bits;  // at most twice: positive bf16 are ordered as integers
  return bits;
}

bool quantise_int8(const float* group, int64_t n, int8_t* values, uint16_t* scale) {
  float amax = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(group[i])) return false;
    amax = std::max(amax, std::fabs(group[i]));
  }
  *scale = int8_scale(amax);
  const float divisor = bf16_to_f32(*scale);
  for (int64_t i = 0; i < n; ++i) {
    const float q = divisor > 0 ? round_even(group[i] / divisor) : 0.0f;
    values[i] = static_cast<int8_t>(std::clamp(q, -127.0f, 127.0f));
  }
  return true;
}

constexpr float kInt4Max = 15.0f;
constexpr int64_t kWorthLanes = 3;  ///< fewer groups than this are as fast one by one
constexpr int kRefinements = 4;
constexpr std::array kStarts = {1.0f, 0.9f, 0.8f,
                                0.7f};  ///< parts of the range that 15 steps span at first; the rest is cut off

/// value = q * scale + offset, both numbers as they are stored.
struct Int4Fit {
  float scale = 0, offset = 0;
  float error = std::numeric_limits<float>::infinity();  ///< sum of squares
  std::array<float, kQuantGroup> q{};
};

/// Rounds the group to the nearest values that `scale` and `offset`, rounded to bf16, can say.
void round_group(const float* group, int64_t n, float scale, float offset, Int4Fit& fit) {
  fit.scale = bf16_to_f32(f32_to_bf16(scale));
  fit.offset = bf16_to_f32(f32_to_bf16(offset));
  const float inverse = fit.scale > 0 ? 1.0f / fit.scale : 0.0f;
  fit.error = 0;
  for (int64_t i = 0; i < n; ++i) {
    // Clamped before it is rounded: a step of next to nothing may make it as large as a float can be.
    const float q = round_even(std::clamp((group[i] - fit.offset) * inverse, 0.0f, kInt4Max));
    const float miss = group[i] - (q * fit.scale + fit.offset);
    fit.q[static_cast<size_t>(i)] = q;
    fit.error += miss * miss;
  }
}

/// Scale and offset of the least squared error for the present q; false where all q are equal, which leaves the scale
/// free.
bool solve(const float* group, int64_t n, const Int4Fit& fit, float& scale, float& offset) {
  double q = 0, v = 0, qq = 0, qv = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double qi = fit.q[static_cast<size_t>(i)];
    q += qi, v += group[i], qq += qi * qi, qv += qi * group[i];
  }
  const double count = static_cast<double>(n), spread = qq - q * q / count;
  if (spread <= 0) return false;
  const double slope = (qv - q * v / count) / spread;
  if (slope <= 0) return false;
  scale = static_cast<float>(slope);
  // With the scale as it will be stored, the offset takes up its rounding.
  offset = static_cast<float>((v - bf16_to_f32(f32_to_bf16(scale)) * q) / count);
  return true;
}

// Values that int4 can be fitted to: finite, and so is all that is made of them.
bool fittable(const float* group, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(group[i])) return false;
  const auto [low, high] = std::minmax_element(group, group + n);
  return std::isfinite(*high - *low) && std::isfinite(bf16_to_f32(f32_to_bf16(*low)));
}

/// The plain loop, for groups that are short or few; fit_int4 does the same for many at once.
Int4Fit fit_group(const float* group, int64_t n) {
  const auto [low, high] = std::minmax_element(group, group + n);
  const float range = *high - *low;
  Int4Fit best, trial;
  for (const float part : kStarts) {
    float scale = range * part / kInt4Max, offset = *low + range * (1.0f - part) / 2.0f;
    for (int i = 0; i <= kRefinements; ++i) {
      round_group(group, n, scale, offset, trial);
      if (trial.error < best.error || best.error == std::numeric_limits<float>::infinity()) best = trial;
      if (!solve(group, n, trial, scale, offset)) break;
    }
  }
  return best;
}

template <class At>
void store_group(const At& q, int64_t n, float scale, float offset, std::byte* values, uint16_t* parameters) {
  parameters[0] = f32_to_bf16(scale);
  parameters[1] = f32_to_bf16(offset);
  for (int64_t i = 0; i < n; ++i) {
    const auto number = static_cast<unsigned>(q(i));
    values[i / 32 * 16 + i % 16] |= static_cast<std::byte>(i % 32 < 16 ? number : number << 4);
  }
}

void quantise_int4(const float* group, int64_t n, std::byte* values, uint16_t* parameters) {
  const Int4Fit fit = fit_group(group, n);
  store_group([&](int64_t i) { return fit.q[static_cast<size_t>(i)]; }, n, fit.scale, fit.offset, values, parameters);
}

// `count` whole groups, at most kFitLanes, side by side; lanes without a group compute zeros.
void quantise_int4_groups(const float* row, int64_t count, std::byte* values, uint16_t* parameters) {
  Int4Fits fits;
  for (int64_t i = 0; i < kQuantGroup; ++i)
    for (int64_t g = 0; g < kFitLanes; ++g) fits.values[i][g] = g < count ? row[g * kQuantGroup + i] : 0.0f;
  fit_int4(fits);
  for (int64_t g = 0; g < count; ++g)
    store_group([&](int64_t i) { return fits.q[i][g]; }, kQuantGroup, fits.scale[g], fits.offset[g],
                values + g * kQuantGroup / 2, parameters + 2 * g);
}

bool quantise_int4_row(const float* row, int64_t n, std::byte* values, uint16_t* parameters) {
  std::memset(values, 0, static_cast<size_t>(row_bytes(DType::kInt4, n)));
  const int64_t whole = n / kQuantGroup;
  for (int64_t g = 0; g < quant_groups(n);) {
    const int64_t side_by_side = std::min(kFitLanes, whole - g), count = side_by_side >= kWorthLanes ? side_by_side : 1;
    const float* begin = row + g * kQuantGroup;
    for (int64_t i = 0; i < count; ++i)
      if (!fittable(begin + i * kQuantGroup, std::min(kQuantGroup, n - (g + i) * kQuantGroup))) return false;
    std::byte* group_values = values + g * kQuantGroup / 2;
    if (count > 1) quantise_int4_groups(begin, count, group_values, parameters + 2 * g);
    else quantise_int4(begin, std::min(kQuantGroup, n - g * kQuantGroup), group_values, parameters + 2 * g);
    g += count;
  }
  return true;
}

bool quantise_int8_row(const float* row, int64_t n, int8_t* values, uint16_t* parameters) {
  for (int64_t begin = 0; begin < n; begin += kQuantGroup)
    if (!quantise_int8(row + begin, std::min(kQuantGroup, n - begin), values + begin, parameters + begin / kQuantGroup))
      return false;
  return true;
}

}  // namespace

bool quantise_row(const float* row, int64_t n, DType to, std::byte* values, uint16_t* parameters) {
  MOESTRO_CHECK(is_quantised(to), "a quantised precision");
  const bool fits = to == DType::kInt8 ? quantise_int8_row(row, n, reinterpret_cast<int8_t*>(values), parameters)
                                       : quantise_int4_row(row, n, values, parameters);
  // Values next to the largest float: rounded up to bf16, their scale could say infinity.
  const std::span<const uint16_t> written(parameters, static_cast<size_t>(quant_groups(n) * group_parameters(to)));
  return fits && !find_group_not_finite(to, std::as_bytes(written));
}

}  // namespace moestro::store
