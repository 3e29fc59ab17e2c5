#pragma once
// Rows of weights and of results of the kernels of many tokens.

#include "kernels/cuda/product_tile.h"
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

/// The pieces of rows that lie in one place.
template <typename W, typename S>
struct ColumnsInOrder {
  int row_bytes, column = 0;
  PieceOfRows at;

  __device__ explicit ColumnsInOrder(int64_t cols) : row_bytes(static_cast<int>(tile_row_bytes<W>(cols))) {}
  __device__ void start(int piece) {
    const int64_t before = static_cast<int64_t>(piece) * (S::kDepth * W::kBits / 8);
    column = piece * S::kDepth;
    at = {before, column / static_cast<int>(kGroup) * W::kParameters, static_cast<int>(row_bytes - before)};
  }
  __device__ bool next() {
    at.offset += S::kDepth * W::kBits / 8;
    at.bytes -= S::kDepth * W::kBits / 8;
    column += S::kDepth;
    at.parameters = column / static_cast<int>(kGroup) * W::kParameters;
    return false;
  }
};

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
