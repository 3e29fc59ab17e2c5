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
/// a / b; 0 where b is 2^126 or more.
__device__ inline float fast_divided(float a, float b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
}

#else

inline float fast_exp2(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}
inline float fast_divided(float a, float b) { return a / b; }

#endif

/// e^x; its error grows with |x|, to some 20 units of the last place.
__device__ inline float fast_exp(float x) { return fast_exp2(x * 1.4426950408889634f); }

}  // namespace moestro::kernels::cuda
