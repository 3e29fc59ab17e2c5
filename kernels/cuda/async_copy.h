#pragma once
// Copies from device memory to shared memory that run while the thread goes on (cp.async). Copies are committed in
// groups and end in the order of their groups. A thread sees the bytes of its own copies after wait_copies; other
// threads see them after a barrier that follows it. Before a place is copied to again, a barrier must follow the last
// read of it.

#include "kernels/cuda/simt.h"

namespace moestro::kernels::cuda {

#if defined(__CUDACC__)

/// The address of shared memory as instructions take it.
__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

/// Copies `bytes` (0 to 16) to `to` and puts zeros behind them, 16 bytes in all. Both are multiples of 16; with 0 bytes
/// nothing is read. L1 is bypassed.
__device__ inline void copy_async16(void* to, const void* from, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
/// The copies of this thread since the last call are a group; it may be empty.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/// Waits until at most the last kGroups groups of this thread have not ended.
template <int kGroups>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
}

#else

/// The emulation: what is copied to is NaN from here until the wait.
inline void copy_async16(void* to, const void* from, int bytes = 16) { emulated::begin_copy(to, from, bytes); }
inline void commit_copies() { emulated::commit_copies(); }
template <int kGroups>
void wait_copies() {
  emulated::wait_copies(kGroups);
}

#endif

}  // namespace moestro::kernels::cuda
