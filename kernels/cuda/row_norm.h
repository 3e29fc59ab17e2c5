#pragma once
// A row whose norm is computed, in registers: four neighbouring numbers after another in each thread. Which thread has
// which, and so the order of every sum, depends on the row's width alone.

#include <initializer_list>

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

inline bool is_aligned16(std::initializer_list<const void*> all) {
  for (const void* at : all)
    if (reinterpret_cast<uintptr_t>(at) % 16 != 0) return false;
  return true;
}

/// What a kernel knows of rows when it is compiled: how many times four numbers a thread has, at least row_quads(), and
/// whether four are loaded at once.
template <int kCount, bool kWholeFours>
struct RowForm {
  static constexpr int kQuads = kCount;
  static constexpr bool kWhole = kWholeFours;
};
/// Calls launch() with the form for rows at these places; some may be null.
template <typename Launch>
int32_t with_row_form(int64_t dim, std::initializer_list<const void*> places, Launch launch) {
  if (dim > MOESTRO_CUDA_NORM_MAX) return MOESTRO_CUDA_REFUSED;
  const int64_t quads = row_quads(dim);
  if (dim % 4 != 0 || !is_aligned16(places)) return launch(RowForm<16, false>{});
  if (quads <= 1) return launch(RowForm<1, true>{});
  if (quads <= 2) return launch(RowForm<2, true>{});
  if (quads <= 4) return launch(RowForm<4, true>{});
  if (quads <= 8) return launch(RowForm<8, true>{});
  return launch(RowForm<16, true>{});
}

/// The part of a row that a thread has.
template <typename Form>
struct RowPart {
  static constexpr int kQuads = Form::kQuads;
  int32_t dim;
  int32_t thread, threads;  ///< a thread with a number of `threads` or more has nothing

  __device__ int32_t column(int quad) const { return (quad * threads + thread) * 4; }
  __device__ bool has(int quad) const { return thread < threads && column(quad) < dim; }
};

/// Its row and its part of it in a launch of row_blocks(); the row may be one that is not there.
template <typename Form>
struct RowPlace {
  int64_t row;
  RowPart<Form> part;
};
template <typename Form>
__device__ inline RowPlace<Form> row_place(int64_t dim) {
  const auto width = static_cast<int32_t>(dim);
  if (is_warp_row(dim))
    return {static_cast<int64_t>(blockIdx.x) * kRowWarps + warp_id(), {width, lane_id(), kWarp}};
  return {blockIdx.x, {width, static_cast<int32_t>(threadIdx.x), static_cast<int32_t>(row_threads(dim))}};
}

/// Four neighbouring numbers.
__device__ inline void load_four(const float* from, float (&to)[4]) {
  const auto four = load_as<Bytes16>(from);
  MOESTRO_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = bits_to_float(four.words[i]);
}
/// Those of `count` that there are, and zeros.
__device__ inline void load_some(const float* from, int64_t count, float (&to)[4]) {
  MOESTRO_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = i < count ? from[i] : 0.0f;
}

/// Zeros where the thread has nothing.
template <typename Form>
__device__ inline void load_part(const RowPart<Form>& part, const float* row, float (&to)[Form::kQuads][4]) {
  MOESTRO_UNROLL
  for (int q = 0; q < Form::kQuads; ++q) {
    const int32_t c = part.column(q);
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) to[q][i] = 0.0f;
    if (!part.has(q)) continue;
    if constexpr (Form::kWhole) load_four(row + c, to[q]);
    else load_some(row + c, part.dim - c, to[q]);
  }
}

template <typename Form>
__device__ inline void store_part(const RowPart<Form>& part, const float (&from)[Form::kQuads][4], float* row) {
  MOESTRO_UNROLL
  for (int q = 0; q < Form::kQuads; ++q) {
    if (!part.has(q)) continue;
    const int32_t c = part.column(q);
    if constexpr (Form::kWhole) {
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

/// This thread's share of the sum of squares; what it does not have is zeros.
template <int kQuads>
__device__ inline float part_squares(const float (&x)[kQuads][4]) {
  float sum = 0.0f;
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) sum = multiply_add(x[q][i], x[q][i], sum);
  }
  return sum;
}

/// Over the threads of a row, in each of them. `room`: kRowRoom; not used by a warp's row.
template <typename Form>
__device__ inline float row_sum(const RowPart<Form>& part, float value, float* room) {
  return is_warp_row(part.dim) ? warp_sum(value) : block_sum(value, room);
}

__device__ inline float norm_scale(float squares, int64_t dim, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(dim) + eps);
}

/// x * scale * weight, in place.
template <int kQuads>
__device__ inline void scale_part(float scale, const float (&weight)[kQuads][4], float (&x)[kQuads][4]) {
  MOESTRO_UNROLL
  for (int q = 0; q < kQuads; ++q) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) x[q][i] = x[q][i] * scale * weight[q][i];
  }
}

}  // namespace moestro::kernels::cuda
