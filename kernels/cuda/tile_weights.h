#pragma once
// Formats of weights as products on tensor cores take them: from a stage in shared memory, as it was in device memory,
// to fragments of bf16 in registers.
//
// Weights of 16 bits lie in shared memory as a fragment needs them. A fragment of 8 or 4 bits gets four adjacent
// columns in a lane, 4t to 4t + 3 with t = lane % 4, where the instruction wants 2t, 2t + 1, 2t + 8, 2t + 9. The sum
// over 16 columns may have any order, so the activations' columns are exchanged in the same way (kExchanged): column c
// of 16 lies at exchanged_column(c).

#include "kernels/cuda/bf16_pairs.h"

namespace moestro::kernels::cuda {

/// A pair's place among the eight pairs of 16 columns, if columns are exchanged.
__host__ __device__ constexpr int exchanged_pair(int pair) { return pair % 2 * 4 + pair / 2; }

/// What differs between formats:
///   kBits          of a weight
///   kExchanged     as above; then a word of load_matrices has four or eight columns of one row, otherwise two
///   kParameters    of 16 bits for each group of 64 columns of a row
///   fragment()     b of multiply_tiles: from word(s) of 16 columns (step: which 16) and a row's parameters
struct Bf16Tiles {
  static constexpr int kBits = 16, kParameters = 0;
  static constexpr bool kExchanged = false;
  __device__ static void fragment(const uint32_t (&words)[2], int, uint32_t, uint32_t (&b)[2]) {
    b[0] = words[0];
    b[1] = words[1];
  }
};

/// Rounded to bf16. Activations of f16 would keep the weights exact, but not all activations are within f16's range.
struct F16Tiles {
  static constexpr int kBits = 16, kParameters = 0;
  static constexpr bool kExchanged = false;
  __device__ static uint32_t rounded(uint32_t pair) {
    return bf16_pair(f16_value(static_cast<uint16_t>(pair)), f16_value(static_cast<uint16_t>(pair >> 16)));
  }
  __device__ static void fragment(const uint32_t (&words)[2], int, uint32_t, uint32_t (&b)[2]) {
    b[0] = rounded(words[0]);
    b[1] = rounded(words[1]);
  }
};

/// q * scale, rounded once. A byte behind 0x43 is bf16: 0x4300 | low seven bits is 128 + those, and 0x4300 | the sign's
/// bit is 128 or 256.
struct Int8Tiles {
  static constexpr int kBits = 8, kParameters = 1;
  static constexpr bool kExchanged = true;
  __device__ static uint32_t pair(uint32_t bytes, uint32_t scales) {
    const uint32_t magnitude = bytes & 0xff7fff7fu, less = (bytes & 0xff80ff80u) ^ kBothMinusZeros;
    return multiply_add_pairs(multiply_add_pairs(magnitude, kBothOnes, less), scales, kBothMinusZeros);
  }
  __device__ static void fragment(const uint32_t (&words)[1], int, uint32_t parameters, uint32_t (&b)[2]) {
    const uint32_t scales = select_bytes(parameters, 0, 0x1010);
    b[0] = pair(select_bytes(words[0], kBoth43, 0x4140), scales);
    b[1] = pair(select_bytes(words[0], kBoth43, 0x4342), scales);
  }
  static constexpr uint32_t kBoth43 = 0x43434343u;
};

/// q * scale + offset, rounded once. A word has the low halves of four columns, and of the four 16 columns further the
/// high halves (common/expert_layout.h).
struct Int4Tiles {
  static constexpr int kBits = 4, kParameters = 2;
  static constexpr bool kExchanged = true;
  __device__ static void fragment(const uint32_t (&words)[1], int step, uint32_t parameters, uint32_t (&b)[2]) {
    const uint32_t halves = words[0] >> (step % 2 * 4) & 0x0f0f0f0fu;
    const uint32_t scales = select_bytes(parameters, 0, 0x1010), offsets = select_bytes(parameters, 0, 0x3232);
    MOESTRO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t plus128 = select_bytes(halves, Int8Tiles::kBoth43, i == 0 ? 0x4140 : 0x4342);
      b[i] = multiply_add_pairs(multiply_add_pairs(plus128, kBothOnes, kBoth128 ^ kBothMinusZeros), scales, offsets);
    }
  }
};

/// Of blocks (block_formats.h): the source of a tile decodes them into the stage, each number rounded to bf16 once.
struct DecodedTiles : Bf16Tiles {};

}  // namespace moestro::kernels::cuda
