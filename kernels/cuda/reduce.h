#pragma once
// Sums and maxima over the threads of a warp or a block, in one order whatever the data.

#include "kernels/cuda/simt.h"

namespace moestro::kernels::cuda {

/// In every lane: the sum over each run of `width` lanes, a power of two.
template <int kWidth = kWarp>
__device__ inline float warp_sum(float value) {
  return warp_fold<kWidth>(value, [](float a, float b) { return a + b; });
}

/// The same of each of the first `count` values.
template <int kWidth = kWarp, int kSize>
__device__ inline void warp_sum_each(float (&values)[kSize], int count = kSize) {
  warp_fold_each<kWidth>(values, count, [](float a, float b) { return a + b; });
}

/// take(row, i, sum) for each of the first `count` values of each row; in every lane.
template <int kWidth = kWarp, int kRows, int kSize, typename Take>
__device__ inline void warp_sum_rows(const float (&values)[kRows][kSize], int count, Take take) {
  warp_fold_rows<kWidth>(values, count, [](float a, float b) { return a + b; }, take);
}

/// NaN is ignored, unless all are NaN.
__device__ inline float warp_max(float value) {
  return warp_fold<kWarp>(value, [](float a, float b) { return fmaxf(a, b); });
}
template <int kSize>
__device__ inline void warp_max_each(float (&values)[kSize]) {
  warp_fold_each<kWarp>(values, kSize, [](float a, float b) { return fmaxf(a, b); });
}

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % kWarp; }

/// Afterwards words[i] is what words[lane % 4] was in lane i of these four. Whole warps.
__device__ inline void transpose_in_quad(uint32_t (&words)[4]) {
  MOESTRO_UNROLL
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = (lane_id() & step) != 0;
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      uint32_t &low = words[i], &high = words[i + step];
      const uint32_t got = __shfl_xor_sync(kWholeWarp, upper ? low : high, step);
      if (upper)
        low = got;
      else
        high = got;
    }
  }
}

__device__ inline int warp_id() { return static_cast<int>(threadIdx.x) / kWarp; }

/// The sums over a block of one dimension of several values, each in every thread. `room`: kCount floats of shared
/// memory for each warp; free again afterwards.
template <int kCount>
__device__ inline void block_sums(float (&values)[kCount], float* room) {
  warp_sum_each(values);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return;
  MOESTRO_UNROLL
  for (int i = 0; i < kCount; ++i)
    if (lane_id() == 0) room[warp_id() * kCount + i] = values[i];
  __syncthreads();
  MOESTRO_UNROLL
  for (int i = 0; i < kCount; ++i) values[i] = 0.0f;
  for (int w = 0; w < warps; ++w) {
    MOESTRO_UNROLL
    for (int i = 0; i < kCount; ++i) values[i] += room[w * kCount + i];
  }
  __syncthreads();
}

/// Of one value; `room`: a float for each warp.
__device__ inline float block_sum(float value, float* room) {
  float values[1] = {value};
  block_sums(values, room);
  return values[0];
}

}  // namespace moestro::kernels::cuda
