#pragma once
// A row whose norm is computed, in registers: four neighbouring numbers after another in each thread. Which thread has
// which, and so the order of every sum, depends on the row's width alone.

#include <type_traits>

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

/// Rows up to this width are a warp's, wider ones a block's.
inline constexpr int64_t kWarpRow = 256;
inline constexpr unsigned kRowWarps = 8;  ///< of a block whose warps have a row each
inline constexpr unsigned kRowThreads = kRowWarps * kWarp;  ///< the most of a row
static_assert(MOESTRO_CUDA_NORM_MAX == 16 * 4 * kRowThreads, "a thread has at most 16 times four numbers");

__host__ __device__ constexpr bool is_warp_row(int64_t dim) { return dim <= kWarpRow; }
/// Of a row.
__host__ __device__ constexpr int64_t row_threads(int64_t dim) {
  if (is_warp_row(dim)) return kWarp;
  return at_most<int64_t>(kRowThreads, divided_up(dim, 4 * kWarp) * kWarp);
}
__host__ __device__ constexpr int64_t row_quads(int64_t dim) { return divided_up(dim, 4 * row_threads(dim)); }

/// A launch for n rows.
inline unsigned row_blocks(int64_t n, int64_t dim) {
  return static_cast<unsigned>(is_warp_row(dim) ? divided_up(n, kRowWarps) : n);
}
inline unsigned row_block_threads(int64_t dim) {
  return is_warp_row(dim) ? kRowThreads : static_cast<unsigned>(row_threads(dim));
}
inline constexpr uint64_t kRowRoom = kRowWarps * sizeof(float);  ///< shared memory of such a block

/// Calls launch(count) with a constant that is at least row_quads(dim).
template <typename Launch>
int32_t with_row_quads(int64_t dim, Launch launch) {
  const int64_t quads = row_quads(dim);
  if (dim > MOESTRO_CUDA_NORM_MAX) return MOESTRO_CUDA_REFUSED;
  if (quads <= 1) return launch(std::integral_constant<int, 1>{});
  if (quads <= 2) return launch(std::integral_constant<int, 2>{});
  if (quads <= 4) return launch(std::integral_constant<int, 4>{});
  if (quads <= 8) return launch(std::integral_constant<int, 8>{});
  return launch(std::integral_constant<int, 16>{});
}

/// The part of a row that a thread has.
struct RowPart {
  int64_t dim;
  int64_t thread, threads;  ///< a thread with a number of `threads` or more has nothing

  __device__ int64_t column(int quad) const { return (quad * threads + thread) * 4; }
  __device__ bool has(int quad) const { return thread < threads && column(quad) < dim; }
};

/// Its row and its part of it in a launch of row_blocks(); the row may be one that is not there.
struct RowPlace {
  int64_t row;
  RowPart part;
};
__device__ inline RowPlace row_place(int64_t dim) {
  if (is_warp_row(dim))
    return {static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_id(), {dim, lane_id(), kWarp}};
  return {blockIdx.x, {dim, threadIdx.x, row_threads(dim)}};
}

__device__ inline bool is_aligned(const void* at) { return reinterpret_cast<uint64_t>(at) % 16 == 0; }

/// Columns [c, c + 4) of a row; zeros after its last. `whole`: they can be loaded at once.
__device__ inline void load_four(const float* row, int64_t c, int64_t dim, bool whole, float (&to)[4]) {
  if (whole) {
    const auto four = load_as<Bytes16>(row + c);
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) to[i] = bits_to_float(four.words[i]);
  } else {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) to[i] = c + i < dim ? row[c + i] : 0.0f;
  }
}

/// Zeros where the thread has nothing.
template <int kQuads>
__device__ inline void load_part(const RowPart& part, const float* row, float (&to)[kQuads][4]) {
  const bool whole = part.dim % 4 == 0 && is_aligned(row);
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) to[q][i] = 0.0f;
    if (part.has(q)) load_four(row, part.column(q), part.dim, whole, to[q]);
  }
}

template <int kQuads>
__device__ inline void store_part(const RowPart& part, const float (&from)[kQuads][4], float* row) {
  const bool whole = part.dim % 4 == 0 && is_aligned(row);
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    if (!part.has(q)) continue;
    const int64_t c = part.column(q);
    if (whole) {
      Bytes16 four;
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) four.words[i] = float_to_bits(from[q][i]);
      store_as(row + c, four);
    } else {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i)
        if (c + i < part.dim) row[c + i] = from[q][i];
    }
  }
}

/// This thread's share of the sum of (x - mean)^2.
template <int kQuads>
__device__ inline float part_squares(const RowPart& part, const float (&x)[kQuads][4], float mean = 0.0f) {
  float sum = 0.0f;
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float d = part.has(q) && part.column(q) + i < part.dim ? x[q][i] - mean : 0.0f;
      sum = multiply_add(d, d, sum);
    }
  }
  return sum;
}

/// Over the threads of a row, in each of them. `room`: kRowRoom; not used by a warp's row.
__device__ inline float row_sum(const RowPart& part, float value, float* room) {
  return is_warp_row(part.dim) ? warp_sum(value) : block_sum(value, room);
}

__device__ inline float norm_scale(float squares, int64_t dim, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(dim) + eps);
}

/// x * scale * weight, in place.
template <int kQuads>
__device__ inline void scale_part(const RowPart& part, float scale, const float* weight, float (&x)[kQuads][4]) {
  float w[kQuads][4];
  load_part(part, weight, w);
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) x[q][i] = x[q][i] * scale * w[q][i];
  }
}

}  // namespace moestro::kernels::cuda
