#pragma once
// What remains to be done when all blocks of a kernel have written their results is done by the one that ends last.
// No block waits for another.

#include "kernels/cuda/simt.h"

namespace moestro::kernels::cuda {

/// Whether this block is the last of `blocks` that come here, in every thread of it. It then sees what the others have
/// written, if it reads it with load_fresh(). `counter`: 0 before the kernel, and again afterwards. `room`: a word of
/// shared memory, free again afterwards.
__device__ inline bool last_block(uint32_t* counter, uint32_t blocks, uint32_t* room) {
  if (blocks == 1) {
    __syncthreads();
    return true;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *room = atomicAdd(counter, 1u);
  __syncthreads();
  const bool last = *room == blocks - 1;
  __syncthreads();
  if (!last) return false;
  if (threadIdx.x == 0) *counter = 0;
  __threadfence();
  return true;
}

}  // namespace moestro::kernels::cuda
