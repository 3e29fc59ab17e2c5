#pragma once
// How many blocks of a kernel a device holds at once: the grid of kernels whose blocks share their work evenly.

#if defined(__CUDACC__)
#include <atomic>
#endif

#include "kernels/cuda/simt.h"

namespace moestro::kernels::cuda {

#if defined(__CUDACC__)

/// Asks the driver only if the kernel was last asked about with another size: that takes longer than a launch. (Where
/// devices differ, one may get the number of another, which is only slower.)
template <auto kKernel>
int64_t resident_blocks(int threads, int64_t shared_bytes) {
  static std::atomic<int64_t> last{0};  // shared_bytes, and the number in the low half
  constexpr int kHalf = 32;
  if (const int64_t known = last.load(); known >> kHalf == shared_bytes && known != 0) return known & 0xffffffff;
  const auto* of = reinterpret_cast<const void*>(kKernel);
  const auto bytes = static_cast<size_t>(shared_bytes);
  if (bytes > kSharedWithoutAsking)
    (void)cudaFuncSetAttribute(of, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  int device = 0, processors = 0, each = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, of, threads, bytes) != cudaSuccess)
    return 1;  // the launch says what is wrong
  const int64_t blocks = at_least<int64_t>(1, int64_t{processors} * each);
  last = shared_bytes << kHalf | blocks;
  return blocks;
}

#else

/// Few, and no divisor of much: blocks have shares that begin and end anywhere.
template <auto kKernel>
int64_t resident_blocks(int, int64_t) {
  return 7;
}

#endif

}  // namespace moestro::kernels::cuda
