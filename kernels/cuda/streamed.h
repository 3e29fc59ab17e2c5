#pragma once
// Loads of what a kernel reads once.

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

#else

template <bool>
Bytes16 streamed16(const char* at) {
  emulated::count_streamed(sizeof(Bytes16));
  return load_as<Bytes16>(at);
}

#endif

}  // namespace moestro::kernels::cuda
