#include "store/pack/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/expert_layout.h"
#include "common/float16.h"

namespace moestro::store {
namespace {

void to_f32(DType from, const std::byte* source, float* out, int64_t n) {
  const auto load16 = [source](int64_t i) {
    uint16_t h = 0;
    std::memcpy(&h, source + 2 * i, sizeof h);
    return h;
  };
  switch (from) {
    case DType::kF32: std::memcpy(out, source, static_cast<size_t>(n) * sizeof(float)); return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(load16(i));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) out[i] = f16_to_f32(load16(i));
      return;
    case DType::kInt8: MOESTRO_CHECK(false, "no checkpoint format");
  }
}

bool from_f32(const float* in, DType to, std::byte* target, int64_t n) {
  uint16_t h = 0;
  switch (to) {
    case DType::kF32: std::memcpy(target, in, static_cast<size_t>(n) * sizeof(float)); return true;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) h = f32_to_bf16(in[i]), std::memcpy(target + 2 * i, &h, sizeof h);
      return true;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) {
        h = f32_to_f16(in[i]);
        if ((h & 0x7fffu) == 0x7c00u && std::isfinite(in[i])) return false;
        std::memcpy(target + 2 * i, &h, sizeof h);
      }
      return true;
    case DType::kInt8: break;
  }
  MOESTRO_CHECK(false, "quantise_row is for int8");
}

// To the nearest whole number, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction. A call of nearbyint
// for each value would keep the loop from being vectorised.
float round_even(float x) {
  constexpr float kNoFraction = 12582912.0f;
  return (x + kNoFraction) - kNoFraction;
}

// The least bf16 that is >= amax / 127, so that the largest value of the group fits.
uint16_t scale_for(float amax) {
  uint16_t bits = f32_to_bf16(amax / 127.0f);
  while (bf16_to_f32(bits) * 127.0f < amax && bits < 0x7f7fu) ++bits;  // at most twice: positive bf16 are ordered as integers
  return bits;
}

}  // namespace

bool convert_values(DType from, const std::byte* source, DType to, std::byte* target, int64_t n) {
  if (from == to) {
    std::memcpy(target, source, static_cast<size_t>(n * dtype_bytes(from)));
    return true;
  }
  constexpr int64_t kBlock = 1024;
  float block[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t part = std::min(kBlock, n - i);
    to_f32(from, source + i * dtype_bytes(from), block, part);
    if (!from_f32(block, to, target + i * dtype_bytes(to), part)) return false;
  }
  return true;
}

bool quantise_row(DType from, const std::byte* source, int64_t n, int8_t* values, uint16_t* scales, float* work) {
  to_f32(from, source, work, n);
  for (int64_t begin = 0; begin < n; begin += kQuantGroup) {
    const int64_t end = std::min(n, begin + kQuantGroup);
    float amax = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (!std::isfinite(work[i])) return false;
      amax = std::max(amax, std::fabs(work[i]));
    }
    const uint16_t scale = scale_for(amax);
    scales[begin / kQuantGroup] = scale;
    const float divisor = bf16_to_f32(scale);
    for (int64_t i = begin; i < end; ++i) {
      const float q = divisor > 0 ? round_even(work[i] / divisor) : 0.0f;
      values[i] = static_cast<int8_t>(std::clamp(q, -127.0f, 127.0f));
    }
  }
  return true;
}

}  // namespace moestro::store
