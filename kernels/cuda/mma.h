#pragma once
// The product of tensor cores: d += a b of 16 x 16 and 16 x 8 numbers, bf16 (or f16) with f32 sums (PTX:
// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32). Which lane holds which elements is in PTX's manual, "Matrix
// Fragments for mma.m16n8k16", for bf16: with g = lane / 4 and t = lane % 4,
//
//   a[0]        row g, columns 2t and 2t + 1
//   a[1]        the same of row g + 8
//   a[2], a[3]  as a[0], a[1], 8 columns further
//   b[0]        rows 2t and 2t + 1 of column g
//   b[1]        rows 2t + 8 and 2t + 9
//   d[0], d[1]  row g, columns 2t and 2t + 1
//   d[2], d[3]  the same of row g + 8
//
// The first of two numbers in a word is in the low half.
//
// load_matrices reads such fragments out of shared memory (PTX: ldmatrix): four matrices of 8 rows of 8 numbers of 16
// bits. Lane i gives the address of row i % 8 of matrix i / 8, a multiple of 16. to[m] is row g, columns 2t and 2t + 1
// of matrix m, so a[0] to a[3] are the matrices (rows 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15). For b
// whose columns lie as rows in memory, b[0] and b[1] are two matrices that follow each other along such a row.
// load_matrices_turned gives rows 2t and 2t + 1 of column g: fragments of b whose rows lie as rows in memory.

#include "kernels/cuda/numbers.h"

namespace moestro::kernels::cuda {

#if defined(__CUDACC__)

__device__ inline void multiply_tiles(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void load_matrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ inline void load_matrices_turned(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

#else

/// The emulation: what the 32 lanes give, words of a, then of b, then of d, becomes the product in the words of d. The
/// columns of a are added in their order.
inline void multiply_given_tiles(uint64_t* given) {
  float a[16][16], b[16][8];
  const auto unpack = [](uint64_t word, float* first, float* second) {  // two pairs of numbers
    const auto number = [&](int i) { return BF16::value(static_cast<uint16_t>(word >> 16 * i)); };
    first[0] = number(0), first[1] = number(1), second[0] = number(2), second[1] = number(3);
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    const int group = lane / 4, pair = lane % 4 * 2;
    unpack(given[lane], &a[group][pair], &a[group + 8][pair]);
    unpack(given[kWarp + lane], &a[group][pair + 8], &a[group + 8][pair + 8]);
    float right[4];
    unpack(given[2 * kWarp + lane], right, right + 2);
    for (int i = 0; i < 4; ++i) b[pair + i / 2 * 8 + i % 2][group] = right[i];
  }
  // Two neighbours of a row are a word of d.
  for (int row = 0; row < 16; ++row) {
    uint64_t* const words = given + (3 + row / 8) * kWarp + row % 8 * 4;
    float sums[8];
    std::memcpy(sums, words, sizeof sums);
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) sums[column] += a[row][k] * b[k][column];
    std::memcpy(words, sums, sizeof sums);
  }
}
inline void multiply_tiles(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  std::array<uint64_t, 5> words;
  std::memcpy(words.data(), a, sizeof a);
  std::memcpy(words.data() + 2, b, sizeof b);
  std::memcpy(words.data() + 3, d, sizeof d);
  const uint64_t* all = emulated::exchange(emulated::Exchange::kTiles, words, multiply_given_tiles);
  for (int i = 0; i < 2; ++i) std::memcpy(d + 2 * i, all + (3 + i) * kWarp + emulated::lane(), sizeof(uint64_t));
}

/// Each lane reads its row, and the lanes exchange them: element(m, r, c) is a number of matrix m.
template <typename Take>
void exchange_rows(const void* row, Take take) {
  emulated::check_shared(row, 16);
  std::array<uint64_t, 2> mine;
  std::memcpy(mine.data(), row, sizeof mine);
  const uint64_t* all = emulated::exchange(emulated::Exchange::kMatrices, mine);
  take([&](int m, int r, int c) {
    return static_cast<uint32_t>(all[c / 4 * kWarp + m * 8 + r] >> (c % 4 * 16)) & 0xffffu;
  });
}
inline void load_matrices(uint32_t (&to)[4], const void* row) {
  exchange_rows(row, [&](auto element) {
    const int lane = static_cast<int>(emulated::lane()), g = lane / 4, t = lane % 4;
    for (int m = 0; m < 4; ++m) to[m] = element(m, g, 2 * t) | element(m, g, 2 * t + 1) << 16;
  });
}
inline void load_matrices_turned(uint32_t (&to)[4], const void* row) {
  exchange_rows(row, [&](auto element) {
    const int lane = static_cast<int>(emulated::lane()), g = lane / 4, t = lane % 4;
    for (int m = 0; m < 4; ++m) to[m] = element(m, 2 * t, g) | element(m, 2 * t + 1, g) << 16;
  });
}

#endif

}  // namespace moestro::kernels::cuda
