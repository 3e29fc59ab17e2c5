#pragma once
// Activations rounded to bf16, once for all products that read them.

#include "kernels/cuda/bf16_pairs.h"
#include "kernels/cuda/tile_weights.h"

namespace moestro::kernels::cuda {

inline constexpr int kRoundThreads = 256;

__host__ __device__ constexpr int64_t rounded_columns(int64_t cols) {
  return divided_up(cols, MOESTRO_CUDA_ROUNDED_COLUMNS) * MOESTRO_CUDA_ROUNDED_COLUMNS;
}
/// Blocks for `rows` rows; a thread has 16 columns.
__host__ __device__ constexpr int64_t rounding_blocks(int64_t rows, int64_t cols) {
  return divided_up(rows * (rounded_columns(cols) / 16), kRoundThreads);
}

/// Block number `block` of them. to: [rows, rounded_columns(cols)]; `exchanged`: as products with such weights need it.
__device__ inline void round_rows(const float* x, int64_t rows, int64_t cols, bool exchanged, int64_t block,
                                  uint16_t* to) {
  const auto of_row = static_cast<uint32_t>(rounded_columns(cols) / 16);
  const int64_t unit = block * kRoundThreads + threadIdx.x;
  if (unit >= rows * of_row) return;
  const auto row = static_cast<uint32_t>(unit) / of_row, column = (static_cast<uint32_t>(unit) % of_row) * 16;
  const float* from = x + row * cols + column;
  float numbers[16];
  const bool whole = cols % 4 == 0 && column + 16 <= cols && reinterpret_cast<uint64_t>(x) % 16 == 0;
  MOESTRO_UNROLL
  for (int i = 0; i < 16; i += 4) {
    if (whole) {
      const auto four = load_as<Bytes16>(from + i);
      MOESTRO_UNROLL
      for (int j = 0; j < 4; ++j) numbers[i + j] = bits_to_float(four.words[j]);
    } else {
      MOESTRO_UNROLL
      for (int j = 0; j < 4; ++j) numbers[i + j] = column + i + j < cols ? from[i + j] : 0.0f;
    }
  }
  Bytes16 out[2];
  MOESTRO_UNROLL
  for (int pair = 0; pair < 8; ++pair) {
    const uint32_t word = bf16_pair(numbers[2 * pair], numbers[2 * pair + 1]);
    // Both places are known when this is compiled, so nothing is indexed at run time.
    if (exchanged) out[exchanged_pair(pair) / 4].words[exchanged_pair(pair) % 4] = word;
    else out[pair / 4].words[pair % 4] = word;
  }
  store_as(to + unit * 16, out[0]);
  store_as(to + unit * 16 + 8, out[1]);
}

}  // namespace moestro::kernels::cuda
