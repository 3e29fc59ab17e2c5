#pragma once
// Blocks of quantised values: adjacent columns of a row, with their scales. Sizes are in common/dtype.h (block_shape).
// All numbers are little-endian.
//
// As GGUF files have them; d, m and dmin are f16:
//
//   q4_0     32: d | 16 bytes, columns 0..15 in the low halves and 16..31 in the high ones       d * (q - 8)
//   q4_1     32: d | m | 16 bytes as q4_0                                                        d * q + m
//   q5_0     32: d | u32, bit 4 of each column | 16 bytes as q4_0                                d * (q - 16)
//   q5_1     32: d | m | u32 as q5_0 | 16 bytes as q4_0                                          d * q + m
//   q8_0     32: d | 32 signed bytes                                                             d * q
//   iq4_nl   32: d | 16 bytes as q4_0, indices of a table                                        d * table[q]
//   mxfp4    32: exponent e, one byte | 16 bytes as q4_0, e2m1                                   2^(e - 127) * value
//   q2_k    256: 16 bytes (scale, minimum << 4; of 16 columns each) | 64 bytes | d | dmin        (d s) q - (dmin m)
//   q3_k    256: 32 bytes, bit 2 of each column | 64 bytes | 12 bytes of 6-bit scales | d        (d (s - 32)) (q - 4)
//   q4_k    256: d | dmin | 12 bytes of 6-bit scales and minima, of 32 columns each | 128 bytes  (d s) q - (dmin m)
//   q5_k    256: d | dmin | 12 bytes as q4_k | 32 bytes, bit 4 of each column | 128 bytes        (d s) q - (dmin m)
//   q6_k    256: 128 bytes of low halves | 64 bytes of bits 4, 5 | 16 signed scales | d          (d s) (q - 32)
//   iq4_xs  256: d | u16 and 4 bytes, high 2 and low 4 bits of 8 scales | 8 x 16 bytes as iq4_nl  (d (s - 32)) table[q]
//
// Of other checkpoints, whose values, scales and zero points are tensors of their own there:
//
//   fp8          128: scale f32 | 128 bytes, e4m3 (OCP FP8; 0x7f and 0xff are not numbers)        scale * value
//   fp8_g32       32: the same of 32 columns
//   int4_g128    128: scale, 16 bits | zero point z, one byte | 1 if the scale is bf16, 0 if f16 | 4 x 16 bytes as q4_0
//                                                                                                 scale * (q - z)
//   int4_g64, int4_g32: the same of 64 and of 32 columns
//   nvfp4        128: scale of the tensor, f32 | 8 scales s of 16 columns each, e4m3 | 4 x 16 bytes as q4_0, e2m1
//                                                                                                 (scale * s) * value
//
// Of no checkpoint, made by packing (store/pack/fit_int2.h):
//
//   int2          64: scale, offset, bf16 each | 16 bytes, byte i has column 16 g + i in bits 2 g and 2 g + 1
//                                                                                                 scale * q + offset

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/dtype.h"

namespace moestro::formats {

/// Signed values of iq4_nl and iq4_xs, and twice those of e2m1, of which both zeros are 0.
extern const int8_t kIQ4NLValues[16];
extern const int8_t kE2M1Doubled[16];

/// The most that products of any of these formats with normal activations differ from exact ones where activations are
/// rounded to 8 bits with a scale for each 64 columns; of the results' standard deviation. Rounding a number of a group
/// whose largest is 3 errs by 0.007 on average: this is 6 times that.
inline constexpr double kRoundedProductError = 0.04;

/// A number of e4m3; NaN if it is none.
float e4m3_to_f32(uint8_t byte);

/// The scale and the minimum of columns [32 * group, 32 * group + 32) in the 12 bytes of q4_k and q5_k.
struct ScaleAndMinimum {
  uint8_t scale = 0, minimum = 0;
};
ScaleAndMinimum scale_and_minimum(const uint8_t* packed, int group);

/// Writes `cols` numbers, a multiple of block_shape(d).columns. is_blocks(d).
void dequantise(DType d, const std::byte* row, int64_t cols, float* out);

/// Index of the first block whose values or scales can make numbers that are not finite. `bytes` are those from byte
/// `at` on of a run of blocks, both multiples of 4.
std::optional<size_t> find_block_not_finite(DType d, uint64_t at, std::span<const std::byte> bytes);

}  // namespace moestro::formats
