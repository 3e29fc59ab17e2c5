#pragma once
// What kernels may use. nvcc compiles them for devices, and g++ compiles the same sources against kernels/cuda/emulated
// for tests. So a kernel uses only what both have:
//
// - threadIdx, blockIdx, blockDim, gridDim; __syncthreads(), __syncwarp(); __shfl_sync, __shfl_xor_sync, __ballot_sync
//   of whole warps, and what is made of them below; atomicAdd. Every thread of the block or warp reaches a barrier or
//   an exchange, and the number of threads of a block is a multiple of kWarp.
// - shared memory only through shared_memory(), with the size given at launch: the emulation poisons and guards it.
// - explicit multiply-adds (multiply_add): nvcc contracts nothing (--fmad=false), so that a function rounds in the same
//   way wherever it is used.
// - launch() in place of <<< >>>. launch_early() for a kernel whose every thread calls after_predecessors() before it
//   reads or writes anything but weights: it may then begin while the kernel before it ends (early_starts).
// - last_block() (last_block.h) for what remains to be done when all blocks of a kernel have written their results; it
//   alone uses __threadfence().

#if defined(__CUDACC__)

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#define MOESTRO_UNROLL _Pragma("unroll")
#define MOESTRO_UNROLL_4 _Pragma("unroll 4")

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

/// A value that all lanes of the warp have: the compiler sees by this that they do, and that branches on it do not part
/// the warp. All lanes call it.
template <typename T>
__device__ inline T uniform(T value) {
  return __shfl_sync(0xffffffffu, value, 0);
}

/// Past the caches that other blocks' writes do not reach.
__device__ inline float load_fresh(const float* at) { return __ldcg(at); }
__device__ inline int32_t load_fresh(const int32_t* at) { return __ldcg(at); }
/// What nothing writes during the kernel, where the compiler cannot see that it is in global memory.
__device__ inline float load_unwritten(const float* at) { return __ldg(at); }
/// Brings the 128 bytes around `at` into the cache that all blocks share.
__device__ inline void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

/// In every lane: the values of each run of `kWidth` lanes folded into one, those of lanes kWidth / 2 apart first.
template <int kWidth, typename T, typename Fold>
__device__ inline T warp_fold(T value, Fold fold) {
  for (int step = kWidth / 2; step > 0; step /= 2) value = fold(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
/// The same for each of the first `count` values, which all lanes agree on.
template <int kWidth, typename T, int kSize, typename Fold>
__device__ inline void warp_fold_each(T (&values)[kSize], int count, Fold fold) {
  MOESTRO_UNROLL
  for (int i = 0; i < kSize; ++i) {
    if (i >= count) break;
    values[i] = warp_fold<kWidth>(values[i], fold);
  }
}
/// take(row, i, folded) in every lane, for each of the first `count` values of each row. One is handed on before the
/// next is folded, so that they need no registers of their own.
template <int kWidth, typename T, int kRows, int kSize, typename Fold, typename Take>
__device__ inline void warp_fold_rows(const T (&values)[kRows][kSize], int count, Fold fold, Take take) {
  MOESTRO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    MOESTRO_UNROLL
    for (int i = 0; i < kSize; ++i) {
      if (i >= count) break;
      take(r, i, warp_fold<kWidth>(values[r][i], fold));
    }
  }
}
/// Sums each of kCount values over this lane and the lane kStep away. Each of the two keeps half of the sums; the lane
/// whose bit kStep is 0 keeps the first half. Those are then summed over lanes kStep / 2 away, and so on, until a lane
/// has kKept sums, in values[0, kKept). Like warp_fold's steps, with fewer exchanges.
template <int kCount, int kKept, int kStep, int kSize>
__device__ inline void reduce_scatter(float (&values)[kSize]) {
  if constexpr (kCount > kKept) {
    constexpr int kHalf = kCount / 2;
    const bool upper = (threadIdx.x & kStep) != 0;
    MOESTRO_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      const float got = __shfl_xor_sync(0xffffffffu, upper ? values[i] : values[i + kHalf], kStep);
      values[i] = (upper ? values[i + kHalf] : values[i]) + got;
    }
    reduce_scatter<kHalf, kKept, kStep / 2>(values);
  }
}
/// The largest value of a warp, in every lane.
__device__ inline uint32_t warp_most(uint32_t value) { return __reduce_max_sync(0xffffffffu, value); }

/// Waits until everything that was queued before this kernel has ended and its writes are visible.
__device__ inline void after_predecessors() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// The next kernel may begin, up to its after_predecessors(), when all blocks have called this or ended.
__device__ inline void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

inline constexpr uint64_t kSharedWithoutAsking = 48 * 1024;

/// Whether launch_early() differs from launch(). Set once, before the first launch, for devices that can (9.0 on).
inline bool early_starts = false;

template <typename... P>
cudaError_t allow_shared(void (*kernel)(P...), uint64_t shared_bytes) {
  if (shared_bytes <= kSharedWithoutAsking) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes));
  if (error != cudaSuccess) (void)cudaGetLastError();  // or the next launch would find it
  return error;
}

template <typename... P, typename... A>
int32_t launch(void (*kernel)(P...), dim3 grid, dim3 block, uint64_t shared_bytes, void* stream,
               const A&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return 0;
  if (const cudaError_t error = allow_shared(kernel, shared_bytes); error != cudaSuccess) return error;
  kernel<<<grid, block, shared_bytes, static_cast<cudaStream_t>(stream)>>>(arguments...);
  return cudaGetLastError();
}

template <typename... P, typename... A>
int32_t launch_early(void (*kernel)(P...), dim3 grid, dim3 block, uint64_t shared_bytes, void* stream,
                     const A&... arguments) {
  if (!early_starts) return launch(kernel, grid, block, shared_bytes, stream, arguments...);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return 0;
  if (const cudaError_t error = allow_shared(kernel, shared_bytes); error != cudaSuccess) return error;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, P(arguments)...);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

}  // namespace moestro::kernels::cuda

#else

#include "kernels/cuda/emulator/emulator.h"

#endif

namespace moestro::kernels::cuda {

inline constexpr int kWarp = 32;
/// What a block may have on all cards from compute capability 8.0 on.
inline constexpr int64_t kSharedOfEveryCard = 99 * 1024;
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
