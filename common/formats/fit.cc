#include "common/formats/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moestro::formats {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Parts of a group that the outermost levels span at first; what is beyond is cut off.
constexpr float kParts[] = {1.0f, 0.9f, 0.8f, 0.7f};
constexpr int kRefinements = 2;

/// The number of the largest magnitude.
void largest(const Lanes& lanes, float* out) {
  for (int64_t l = 0; l < kLanes; ++l) out[l] = 0;
  for (int64_t i = 0; i < lanes.length; ++i)
    for (int64_t l = 0; l < kLanes; ++l)
      if (std::fabs(lanes.values[i][l]) > std::fabs(out[l])) out[l] = lanes.values[i][l];
}

}  // namespace

ScaleFit fit_scales(const Lanes& lanes, const Levels& levels, float (*stored)(float)) {
  ScaleFit best;
  float extreme[kLanes], least_error[kLanes], scale[kLanes];
  std::fill(least_error, least_error + kLanes, kInfinity);
  largest(lanes, extreme);
  LaneSums sums;
  // Where levels reach further on one side, the largest number is tried on either.
  const float ends[] = {levels.least, levels.most};
  const int64_t sides = levels.least == -levels.most ? 1 : 2;
  for (int64_t side = 0; side < sides; ++side)
    for (const float part : kParts) {
      for (int64_t l = 0; l < kLanes; ++l) scale[l] = stored(extreme[l] / ends[side] * part);
      for (int i = 0; i <= kRefinements; ++i) {
        levels.round(lanes, scale, sums);
        for (int64_t l = 0; l < kLanes; ++l) {
          if (sums.error[l] < least_error[l]) least_error[l] = sums.error[l], best.scale[l] = scale[l];
          if (sums.qq[l] > 0) scale[l] = stored(sums.qx[l] / sums.qq[l]);
        }
      }
    }
  return best;
}

AffineFit fit_affine(const Lanes& lanes, RoundAffine round, float most) {
  AffineFit best;
  float low[kLanes] = {}, high[kLanes], sum[kLanes] = {}, least_error[kLanes], scale[kLanes], minimum[kLanes];
  std::fill(high, high + kLanes, -kInfinity);
  std::fill(least_error, least_error + kLanes, kInfinity);
  for (int64_t i = 0; i < lanes.length; ++i)
    for (int64_t l = 0; l < kLanes; ++l) {
      low[l] = std::min(low[l], lanes.values[i][l]);
      high[l] = std::max(high[l], lanes.values[i][l]);
      sum[l] += lanes.values[i][l];
    }
  const auto count = static_cast<float>(lanes.length);
  LaneSums sums;
  for (const float part : kParts) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const float range = std::max(0.0f, high[l] - low[l]);
      scale[l] = range * part / most;
      minimum[l] = std::max(0.0f, -(low[l] + range * (1.0f - part) / 2.0f));
    }
    for (int i = 0; i <= kRefinements; ++i) {
      round(lanes, scale, minimum, sums);
      for (int64_t l = 0; l < kLanes; ++l) {
        if (sums.error[l] < least_error[l])
          least_error[l] = sums.error[l], best.scale[l] = scale[l], best.minimum[l] = minimum[l];
        const float spread = sums.qq[l] - sums.q[l] * sums.q[l] / count;
        if (!(spread > 0)) continue;  // all q are equal, which leaves the scale free
        const float slope = (sums.qx[l] - sums.q[l] * sum[l] / count) / spread;
        const float offset = (sum[l] - slope * sums.q[l]) / count;
        if (!(slope > 0)) continue;
        // A minimum below 0 cannot be said: then the least error is without one.
        scale[l] = offset > 0 ? std::max(0.0f, sums.qx[l] / sums.qq[l]) : slope;
        minimum[l] = offset > 0 ? 0.0f : -offset;
      }
    }
  }
  return best;
}

}  // namespace moestro::formats
