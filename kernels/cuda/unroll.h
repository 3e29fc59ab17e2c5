#pragma once
// How far a loop is unrolled, where all of it would take too many registers or too much code.

#if defined(__CUDACC__)
#define MOESTRO_PRAGMA(text) _Pragma(#text)
#define MOESTRO_UNROLL_BY(n) MOESTRO_PRAGMA(unroll n)
#else
#define MOESTRO_UNROLL_BY(n)
#endif
#define MOESTRO_NO_UNROLL MOESTRO_UNROLL_BY(1)

namespace moestro::kernels::cuda {

/// The value, of which the compiler knows nothing: what follows from it is computed anew where it is needed, and takes
/// no registers in between.
#if defined(__CUDACC__)
__device__ inline int not_hoisted(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
#else
inline int not_hoisted(int value) { return value; }
#endif

}  // namespace moestro::kernels::cuda
