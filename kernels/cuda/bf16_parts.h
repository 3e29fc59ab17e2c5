#pragma once
// A number of f32 as the sum of two of bf16, which has 16 of its 24 bits: for products on tensor cores whose errors may
// not be those of one bf16.

#include "kernels/cuda/bf16_pairs.h"

namespace moestro::kernels::cuda {

/// Two numbers.
struct PairParts {
  uint32_t high, low;
};
__device__ inline PairParts parts_of(float first, float second) {
  const uint32_t high = bf16_pair(first, second);
  return {high,
          bf16_pair(first - bits_to_float(high << 16), second - bits_to_float(high & 0xffff0000u))};
}

/// A fragment of a product's left side (mma.h).
struct FragmentParts {
  uint32_t high[4], low[4];
};
/// Sums of products as they lie in lanes, 16 rows of 8 columns and of the next 8, become the left side of another
/// product: a lane has the same numbers in both.
__device__ inline FragmentParts parts_of(const float (&left)[4], const float (&right)[4]) {
  FragmentParts parts;
  MOESTRO_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float(&four)[4] = i < 2 ? left : right;
    const PairParts pair = parts_of(four[i % 2 * 2], four[i % 2 * 2 + 1]);
    parts.high[i] = pair.high, parts.low[i] = pair.low;
  }
  return parts;
}

}  // namespace moestro::kernels::cuda
