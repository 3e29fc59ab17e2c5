#pragma once
// The order of numbered values: a key orders every f32, with NaN lowest, and of equal values the lower id before the
// higher. So no two keys are equal.

#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

/// 0 is below every key.
using RankKey = uint64_t;

__device__ inline RankKey key_of(float value, int64_t id) {
  const uint32_t bits = value == 0.0f ? 0u : float_to_bits(value);  // -0 is 0
  const uint32_t ordered = isnan(value) ? 0u : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(id));
}
__device__ inline int64_t id_of(RankKey key) { return 0xffffffffu - static_cast<uint32_t>(key); }
/// Of a key whose value is not NaN; 0 for -0.
__device__ inline float value_of(RankKey key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return bits_to_float((ordered >> 31) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

/// The highest key of a warp, in every lane.
__device__ inline RankKey warp_best(RankKey key) {
  const auto own = static_cast<uint32_t>(key >> 32), high = warp_most(own);
  return static_cast<RankKey>(high) << 32 | warp_most(own == high ? static_cast<uint32_t>(key) : 0u);
}

}  // namespace moestro::kernels::cuda
