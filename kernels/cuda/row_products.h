#pragma once
// Products of one row of weights of any width with a few tokens by a warp: each weight is loaded once, widened in
// registers, and multiplied with f32 activations. A row is cut into units of 16 columns, of which a lane takes every
// 32nd. So a product has one order of summation, whatever else is computed. few_products.h is faster, for rows of whole
// slots.

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

inline constexpr int kTokensAtOnce = 4;
inline constexpr int64_t kGroup = 64;  // kQuantGroup

/// A row of weights in memory.
struct WeightRow {
  const char* values;
  const uint16_t* parameters;
  int64_t cols;
};

/// The beginnings of the two groups of eight of a unit, if columns are adjacent.
struct SideBySide {
  __host__ __device__ static int64_t units(int64_t cols) { return divided_up(cols, 16); }
  __device__ static int64_t column(int64_t unit, int eight) { return unit * 16 + eight * 8; }
};

/// f32, bf16, f16.
template <typename N>
struct PlainWeights : SideBySide {
  __host__ __device__ static int64_t row_bytes(int64_t cols) {
    return cols * static_cast<int64_t>(sizeof(typename N::Stored));
  }
  __host__ __device__ static int64_t row_parameters(int64_t) { return 0; }
  __device__ static void load(const WeightRow& row, int64_t unit, int eight, float (&to)[8]) {
    const int64_t c = column(unit, eight);
    const auto* numbers = reinterpret_cast<const typename N::Stored*>(row.values) + c;
    if (row.cols % 8 == 0 && c < row.cols) load8<N>(numbers, to);
    else load8_some<N>(numbers, row.cols - c, to);
  }
};

/// value = q * scale, a bf16 scale for each group.
struct Int8Weights : SideBySide {
  __host__ __device__ static int64_t row_bytes(int64_t cols) { return cols; }
  __host__ __device__ static int64_t row_parameters(int64_t cols) { return divided_up(cols, kGroup); }
  __device__ static void load(const WeightRow& row, int64_t unit, int eight, float (&to)[8]) {
    PlainWeights<Int8>::load(row, unit, eight, to);
    const int64_t c = column(unit, eight);
    const float scale = c < row.cols ? bf16_value(row.parameters[c / kGroup]) : 0.0f;
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i) to[i] *= scale;
  }
};

/// value = q * scale + offset; eight bytes hold the eight columns of a unit in their low halves, and the columns 16
/// further in their high halves (common/expert_layout.h).
struct Int4Weights {
  __host__ __device__ static int64_t units(int64_t cols) { return divided_up(cols, kGroup) * 4; }
  __device__ static int64_t column(int64_t unit, int eight) {
    return unit / 4 * kGroup + unit % 4 / 2 * 32 + unit % 2 * 8 + eight * 16;
  }
  __host__ __device__ static int64_t row_bytes(int64_t cols) { return divided_up(cols, kGroup) * (kGroup / 2); }
  __host__ __device__ static int64_t row_parameters(int64_t cols) { return divided_up(cols, kGroup) * 2; }
  __device__ static void load(const WeightRow& row, int64_t unit, int eight, float (&to)[8]) {
    const auto packed = load_as<Bytes8>(row.values + unit * 8);
    const uint16_t* group = row.parameters + unit / 4 * 2;
    const float scale = bf16_value(group[0]), offset = bf16_value(group[1]);
    MOESTRO_UNROLL
    for (int i = 0; i < 8; ++i)
      to[i] = multiply_add(static_cast<float>(byte_of(packed.words, i) >> (eight * 4) & 15), scale, offset);
  }
};

/// The tokens that a warp multiplies a row with.
struct Tokens {
  const float* x[kTokensAtOnce];
  int count;
};

/// Eight activations from column c on; zeros after the last.
__device__ inline void load_x(const float* x, int64_t c, int64_t cols, bool aligned, float (&to)[8]) {
  if (aligned && c + 8 <= cols) load8<F32>(x + c, to);
  else load8_some<F32>(x + c, cols - c, to);
}

/// sums[row][t] += the products of one unit of each of kRows rows of equal length with token t's columns; x is the
/// activation of column 0.
template <typename W, int kRows>
__device__ inline void add_unit(const WeightRow (&rows)[kRows], int64_t unit, const Tokens& tokens, bool aligned,
                                float (&sums)[kRows][kTokensAtOnce]) {
  MOESTRO_UNROLL
  for (int eight = 0; eight < 2; ++eight) {
    float w[kRows][8];
    MOESTRO_UNROLL
    for (int r = 0; r < kRows; ++r) W::load(rows[r], unit, eight, w[r]);
    MOESTRO_UNROLL
    for (int t = 0; t < kTokensAtOnce; ++t) {
      if (t >= tokens.count) break;
      float x[8];
      load_x(tokens.x[t], W::column(unit, eight), rows[0].cols, aligned, x);
      MOESTRO_UNROLL
      for (int r = 0; r < kRows; ++r) {
        MOESTRO_UNROLL
        for (int i = 0; i < 8; ++i) sums[r][t] = multiply_add(w[r][i], x[i], sums[r][t]);
      }
    }
  }
}

/// The sums over the lanes, in every lane.
template <int kRows>
__device__ inline void sum_lanes(int count, float (&sums)[kRows][kTokensAtOnce]) {
  warp_sum_rows(sums, count, [&](int r, int t, float sum) { sums[r][t] = sum; });
}

/// Whether activations of rows this long can be loaded eight at a time.
__device__ inline bool loads_whole(const float* x, int64_t cols) {
  return cols % 4 == 0 && reinterpret_cast<uint64_t>(x) % 16 == 0;
}

}  // namespace moestro::kernels::cuda
