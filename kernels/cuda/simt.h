#pragma once
// What kernels may use. nvcc compiles them for devices, and g++ compiles the same sources against kernels/cuda/emulated
// for tests. So a kernel uses only what both have:
//
// - threadIdx, blockIdx, blockDim, gridDim; __syncthreads(), __syncwarp(); __shfl_sync, __shfl_xor_sync, __ballot_sync
//   of whole warps; atomicAdd and atomicOr on 32 bits. Every thread of the block or warp reaches a barrier or an
//   exchange, and the number of threads of a block is a multiple of kWarp.
// - shared memory only through shared_memory(), with the size given at launch: the emulation poisons and guards it.
// - explicit multiply-adds (multiply_add): nvcc contracts nothing (--fmad=false), so that a function rounds in the same
//   way wherever it is used.
// - launch() in place of <<< >>>.

#if defined(__CUDACC__)

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#define MOESTRO_UNROLL _Pragma("unroll")

namespace moestro::kernels::cuda {

__device__ inline char* shared_memory() {
  extern __shared__ __align__(16) char moestro_shared_memory[];
  return moestro_shared_memory;
}

__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
__device__ inline uint32_t float_to_bits(float f) { return __float_as_uint(f); }
__device__ inline float f16_value(uint16_t half) { return __half2float(__ushort_as_half(half)); }
__device__ inline uint16_t f16_bits(float f) { return __half_as_ushort(__float2half_rn(f)); }

inline constexpr uint64_t kSharedWithoutAsking = 48 * 1024;

template <typename... P, typename... A>
int32_t launch(void (*kernel)(P...), dim3 grid, dim3 block, uint64_t shared_bytes, void* stream,
               const A&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return 0;
  if (shared_bytes > kSharedWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel<<<grid, block, shared_bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return cudaGetLastError();
}

}  // namespace moestro::kernels::cuda

#else

#include "kernels/cuda/emulator/emulator.h"

#endif

namespace moestro::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kWholeWarp = 0xffffffffu;

template <typename T>
__host__ __device__ constexpr T at_most(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
__host__ __device__ constexpr T at_least(T a, T b) {
  return a < b ? b : a;
}
__host__ __device__ constexpr int64_t divided_up(int64_t n, int64_t d) { return (n + d - 1) / d; }

}  // namespace moestro::kernels::cuda
