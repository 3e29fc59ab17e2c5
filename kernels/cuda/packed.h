#pragma once
// Loads of what a kernel reads once, and instructions on bytes and pairs of bf16. A pair is a word: its first number is
// in the low half.

#include "kernels/cuda/numbers.h"

namespace moestro::kernels::cuda {

#if defined(__CUDACC__)

/// 16 aligned bytes that nothing writes during the kernel and that are not read again: they leave the L1 cache to
/// others. kAhead: the L2 cache is told to fetch the 256 bytes around them, if rows are long enough for that to pay.
template <bool kAhead>
__device__ inline Bytes16 streamed16(const char* at) {
  Bytes16 b;
  if constexpr (kAhead)
    asm("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(b.words[0]), "=r"(b.words[1]), "=r"(b.words[2]), "=r"(b.words[3])
        : "l"(at));
  else
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(b.words[0]), "=r"(b.words[1]), "=r"(b.words[2]), "=r"(b.words[3])
        : "l"(at));
  return b;
}

/// The bytes of `low` are numbered 0 to 3, those of `high` 4 to 7. Digit i of `which`, from the right, is the number of
/// byte i of the result.
__device__ inline uint32_t chosen_bytes(uint32_t low, uint32_t high, uint32_t which) {
  return __byte_perm(low, high, which);
}

/// Both, rounded to nearest even.
__device__ inline uint32_t bf16_pair(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

/// a * b + c of each half, rounded once.
__device__ inline uint32_t multiply_add_pairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

#else

template <bool>
Bytes16 streamed16(const char* at) {
  return load_as<Bytes16>(at);
}

inline uint32_t chosen_bytes(uint32_t low, uint32_t high, uint32_t which) {
  const uint64_t all = static_cast<uint64_t>(high) << 32 | low;
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < 4; ++i)
    bytes |= static_cast<uint32_t>(all >> ((which >> (4 * i) & 7) * 8) & 0xff) << (8 * i);
  return bytes;
}

inline uint32_t bf16_pair(float first, float second) {
  return static_cast<uint32_t>(bf16_bits(second)) << 16 | bf16_bits(first);
}

/// The emulation: sums of doubles, which are exact for numbers of quantised weights.
inline uint32_t multiply_add_pairs(uint32_t a, uint32_t b, uint32_t c) {
  const auto half = [&](int i) {
    const auto value = [i](uint32_t pair) {
      return static_cast<double>(bf16_value(static_cast<uint16_t>(pair >> (16 * i))));
    };
    return static_cast<float>(value(a) * value(b) + value(c));
  };
  return bf16_pair(half(0), half(1));
}

#endif

}  // namespace moestro::kernels::cuda
