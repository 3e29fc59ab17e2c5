#pragma once
// Rows of weights and of results of the kernels of many tokens.

#include "kernels/cuda/row_products.h"

namespace moestro::kernels::cuda {

/// Bytes of a row of weights.
template <typename W>
__host__ __device__ constexpr int64_t tile_row_bytes(int64_t cols) {
  return W::kBits == 4 ? divided_up(cols, kGroup) * (kGroup / 2) : cols * (W::kBits / 8);
}
template <typename W>
__host__ __device__ constexpr int64_t tile_row_parameters(int64_t cols) {
  return W::kParameters * divided_up(cols, kGroup);
}

/// Two numbers of a row, if they are in it. Both are stored at once where the row allows it.
__device__ inline void store_pair(float* row, int64_t column, int64_t cols, float first, float second) {
  if (column + 1 < cols && reinterpret_cast<uint64_t>(row + column) % 8 == 0) {
    store_as(row + column, Bytes8{float_to_bits(first), float_to_bits(second)});
    return;
  }
  if (column < cols) row[column] = first;
  if (column + 1 < cols) row[column + 1] = second;
}

}  // namespace moestro::kernels::cuda
