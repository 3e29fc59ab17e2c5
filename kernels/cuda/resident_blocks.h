#pragma once
// How many blocks of a kernel a device holds at once: the grid of kernels whose blocks share their work evenly.

#include "kernels/cuda/simt.h"

namespace moestro::kernels::cuda {

#if defined(__CUDACC__)

template <typename... P>
int64_t resident_blocks(void (*kernel)(P...), int threads, int64_t shared_bytes) {
  const auto* of = reinterpret_cast<const void*>(kernel);
  const auto bytes = static_cast<size_t>(shared_bytes);
  if (bytes > kSharedWithoutAsking)
    (void)cudaFuncSetAttribute(of, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  int device = 0, processors = 0, each = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, of, threads, bytes) != cudaSuccess)
    return 1;  // the launch says what is wrong
  return at_least<int64_t>(1, int64_t{processors} * each);
}

#else

/// Few, and no divisor of much: blocks have shares that begin and end anywhere.
template <typename... P>
int64_t resident_blocks(void (*)(P...), int, int64_t) {
  return 7;
}

#endif

}  // namespace moestro::kernels::cuda
