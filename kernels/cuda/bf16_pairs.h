#pragma once
// Two numbers of bf16 in a word, the first in the low half, as tensor cores take them.

#include "kernels/cuda/numbers.h"

namespace moestro::kernels::cuda {

inline constexpr uint32_t kBothOnes = 0x3f803f80u, kBothMinusZeros = 0x80008000u, kBoth128 = 0x43004300u;

#if defined(__CUDACC__)

__device__ inline uint32_t bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// a * b + c of both halves, each rounded once.
__device__ inline uint32_t multiply_add_pairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
/// Byte i is the byte of a (0 to 3) or b (4 to 7) that digit i of `which` names.
__device__ inline uint32_t select_bytes(uint32_t a, uint32_t b, uint32_t which) { return __byte_perm(a, b, which); }

#else

inline uint32_t bf16_pair(float low, float high) {
  return static_cast<uint32_t>(bf16_bits(low)) | static_cast<uint32_t>(bf16_bits(high)) << 16;
}
/// The product is exact in a double, and so is the sum of what is near; towards zero and marked as inexact, a float
/// rounds to bf16 as the sum does.
inline uint16_t multiply_add_bf16(uint16_t a, uint16_t b, uint16_t c) {
  const double sum = static_cast<double>(bf16_value(a)) * bf16_value(b) + bf16_value(c);
  auto f = static_cast<float>(sum);
  if (std::isfinite(f) && static_cast<double>(f) != sum) {
    if (std::fabs(static_cast<double>(f)) > std::fabs(sum)) f = std::nextafter(f, 0.0f);
    f = bits_to_float(float_to_bits(f) | 1u);
  }
  return bf16_bits(f);
}
inline uint32_t multiply_add_pairs(uint32_t a, uint32_t b, uint32_t c) {
  const auto half = [](uint32_t pair, int i) { return static_cast<uint16_t>(pair >> (16 * i)); };
  return static_cast<uint32_t>(multiply_add_bf16(half(a, 0), half(b, 0), half(c, 0))) |
         static_cast<uint32_t>(multiply_add_bf16(half(a, 1), half(b, 1), half(c, 1))) << 16;
}
inline uint32_t select_bytes(uint32_t a, uint32_t b, uint32_t which) {
  const uint64_t all = static_cast<uint64_t>(b) << 32 | a;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<uint32_t>(all >> ((which >> (4 * i) & 7u) * 8) & 0xffu) << (8 * i);
  return out;
}

#endif

}  // namespace moestro::kernels::cuda
