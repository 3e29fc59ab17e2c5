#pragma once
// Single instructions that round less exactly than the functions of numbers.h: for kernels that round anyway.

#include "kernels/cuda/numbers.h"

namespace moestro::kernels::cuda {

#if defined(__CUDACC__)

/// 2^x within 2 units of the last place; results below 2^-126 are 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
/// Two numbers of bf16 in a word, `low` in the low half. To nearest, ties to even.
__device__ inline uint32_t packed_bf16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

#else

inline float fast_exp2(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}
inline uint32_t packed_bf16(float low, float high) {
  return static_cast<uint32_t>(bf16_bits(low)) | static_cast<uint32_t>(bf16_bits(high)) << 16;
}

#endif

}  // namespace moestro::kernels::cuda
