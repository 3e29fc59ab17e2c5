#pragma once
// Products of several matrices with the same x in one launch: each block has rows of one matrix.

#include "kernels/cuda/simt.h"
#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// A block's matrix, and its first row of it.
struct GroupPlace {
  const MoestroCudaGroupMatrix& matrix;
  int64_t first_row;
};
/// Where a block has `rows` rows, in the launch of group_blocks(a, rows).
__device__ inline GroupPlace group_place(const MoestroCudaMatmulGroup& a, int64_t rows) {
  int64_t block = blockIdx.x;
  int m = 0;
  for (; m + 1 < a.count; ++m) {
    const int64_t blocks = divided_up(a.matrices[m].rows, rows);
    if (block < blocks) break;
    block -= blocks;
  }
  return {a.matrices[m], block * rows};
}
inline unsigned group_blocks(const MoestroCudaMatmulGroup& a, int64_t rows) {
  int64_t blocks = 0;
  for (int32_t m = 0; m < a.count; ++m) blocks += divided_up(a.matrices[m].rows, rows);
  return static_cast<unsigned>(blocks);
}

inline int64_t group_rows(const MoestroCudaMatmulGroup& a) {
  int64_t rows = 0;
  for (int32_t m = 0; m < a.count; ++m) rows += a.matrices[m].rows;
  return rows;
}

inline bool are_aligned16(const MoestroCudaMatmulGroup& a) {
  for (int32_t m = 0; m < a.count; ++m)
    if (reinterpret_cast<uintptr_t>(a.matrices[m].weight) % 16 != 0) return false;
  return true;
}

/// The product of a row with a token.
__device__ inline void write_product(const MoestroCudaMatmulGroup& a, const MoestroCudaGroupMatrix& matrix,
                                     int64_t token, int64_t row, float sum) {
  float& y = matrix.y[token * matrix.rows + row];
  const float product = sum + (matrix.bias ? matrix.bias[row] : 0.0f);
  y = a.onto ? y + product : product;
}

}  // namespace moestro::kernels::cuda
