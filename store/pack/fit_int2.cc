#include "store/pack/fit_int2.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/dtype.h"
#include "common/float16.h"

namespace moestro::store {
namespace {

constexpr int64_t kColumns = block_shape(DType::kInt2).columns, kBytes = block_shape(DType::kInt2).bytes;
constexpr float kMost = 3.0f;
constexpr int kRefinements = 6;
/// Parts of the range that the steps span at first; the rest is cut off. With so few values the tails of a group cost
/// more than they are worth.
constexpr float kStarts[] = {1.0f, 0.85f, 0.7f, 0.55f};

float as_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

/// value = q * scale + offset, both as they are stored.
struct Fit {
  float scale = 0, offset = 0, error = std::numeric_limits<float>::infinity();
  uint8_t q[kColumns] = {};
};

void round_block(const float* block, float scale, float offset, Fit& fit) {
  fit.scale = as_bf16(scale), fit.offset = as_bf16(offset);
  const float inverse = fit.scale > 0 ? 1.0f / fit.scale : 0.0f;
  fit.error = 0;
  for (int64_t i = 0; i < kColumns; ++i) {
    // Not below 0, so cutting off the fraction of this rounds to the nearest.
    const float q = std::floor(std::clamp((block[i] - fit.offset) * inverse, 0.0f, kMost) + 0.5f);
    const float miss = block[i] - (q * fit.scale + fit.offset);
    fit.q[i] = static_cast<uint8_t>(q);
    fit.error += miss * miss;
  }
}

/// Scale and offset of the least squared error for the present q. False where they leave the scale free.
bool solve(const float* block, const Fit& fit, float& scale, float& offset) {
  double q = 0, v = 0, qq = 0, qv = 0;
  for (int64_t i = 0; i < kColumns; ++i) {
    const double qi = fit.q[i];
    q += qi, v += block[i], qq += qi * qi, qv += qi * block[i];
  }
  constexpr auto kCount = static_cast<double>(kColumns);
  const double spread = qq - q * q / kCount, slope = spread > 0 ? (qv - q * v / kCount) / spread : 0;
  if (slope <= 0) return false;
  scale = static_cast<float>(slope);
  // With the scale as it will be stored, the offset takes up its rounding.
  offset = static_cast<float>((v - as_bf16(scale) * q) / kCount);
  return true;
}

Fit fit_block(const float* block) {
  const auto [low, high] = std::minmax_element(block, block + kColumns);
  const float range = *high - *low;
  Fit best, trial;
  for (const float part : kStarts) {
    float scale = range * part / kMost, offset = *low + range * (1.0f - part) / 2.0f;
    for (int i = 0; i <= kRefinements; ++i) {
      round_block(block, scale, offset, trial);
      if (trial.error < best.error || std::isinf(best.error)) best = trial;
      if (!solve(block, trial, scale, offset)) break;
    }
  }
  return best;
}

bool is_fittable(const float* block) {
  for (int64_t i = 0; i < kColumns; ++i)
    if (!std::isfinite(block[i])) return false;
  const auto [low, high] = std::minmax_element(block, block + kColumns);
  return std::isfinite(*high - *low);
}

}  // namespace

bool make_int2(const float* numbers, int64_t n, std::byte* blocks) {
  for (int64_t at = 0; at < n; at += kColumns, blocks += kBytes) {
    if (!is_fittable(numbers + at)) return false;
    const Fit fit = fit_block(numbers + at);
    // Numbers next to the largest float, rounded up to bf16.
    if (!std::isfinite(fit.offset) || !std::isfinite(fit.scale * kMost + fit.offset)) return false;
    const uint16_t parameters[] = {f32_to_bf16(fit.scale), f32_to_bf16(fit.offset)};
    std::memset(blocks, 0, kBytes);
    std::memcpy(blocks, parameters, sizeof parameters);
    for (int64_t i = 0; i < kColumns; ++i)
      blocks[4 + i % 16] |= static_cast<std::byte>(fit.q[i] << i / 16 * 2);
  }
  return true;
}

}  // namespace moestro::store
