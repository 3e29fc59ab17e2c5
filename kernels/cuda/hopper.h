#pragma once
// What Hopper (compute capability 9.0) has in addition to simt.h: products of a warpgroup (4 warps, the first a
// multiple of 4) that read both sides from shared memory, barriers in shared memory, and copies of boxes into it that
// one thread begins. Files that include this are compiled for sm_90a alone. The emulation makes a product at the wait
// for it, which is as late as may be.

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/numbers.h"

#if defined(__CUDACC__)
#include <cuda.h>
#else
#include "kernels/cuda/emulator/hopper.h"
#endif

namespace moestro::kernels::cuda {

/// A barrier in shared memory for a number of arrivals and bytes; waits are for the end of phases 0, 1, 0, 1, ...
using SharedBarrier = uint64_t;
inline constexpr int kWarpgroup = 128;

/// Rows of a box of copy_box. A map of all addresses (hopper_map.h) begins at kMapBase; with 2^31 pages it reaches
/// whatever a process has.
inline constexpr int kBoxRows = 64;
inline constexpr uint64_t kMapBase = 1 << 16, kMapPage = 1 << 17;

#if defined(__CUDACC__)

/// Of cuTensorMapEncodeTiled.
using TensorMap = CUtensorMap;

__device__ __forceinline__ void init_barrier(SharedBarrier* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// After the last init_barrier of a thread, before the block's barrier.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void arrive(SharedBarrier* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// An arrival that also announces bytes of copy_box.
__device__ __forceinline__ void arrive_for_bytes(SharedBarrier* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// A bug stops the kernel with an error in place of holding the device for ever.
inline constexpr uint32_t kPollsMax = 1u << 26;
__device__ __forceinline__ void wait_for(SharedBarrier* barrier, uint32_t phase) {
#pragma unroll 1
  for (uint32_t polls = 0; polls < kPollsMax; ++polls) {
    uint32_t ended;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n}\n"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(phase)
        : "memory");
    if (ended != 0) return;
  }
  __trap();
}

/// A box of a tensor map at element (c0, c1, c2); its bytes count for the barrier.
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, int32_t c0, int32_t c1, int32_t c2,
                                         SharedBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(c0), "r"(c1), "r"(c2), "r"(shared_address(barrier))
      : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Before the first product of a run: the registers of its sums are as written.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_product_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wait_product_groups() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
/// The compiler leaves the sums in their registers here.
template <int kSums>
__device__ __forceinline__ void hold_sums(float (&d)[kSums]) {
  MOESTRO_UNROLL
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// clang-format off
#define MOESTRO_SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
    "+f"(d[i + 6]), "+f"(d[i + 7])
#define MOESTRO_SUMS_32(i) MOESTRO_SUMS_8(i), MOESTRO_SUMS_8(i + 8), MOESTRO_SUMS_8(i + 16), MOESTRO_SUMS_8(i + 24)

/// d[64, 2 * kSums] = a b^T (+ d), of bf16 numbers and 16 columns; a and b as swizzled_rows. Of thread t of the
/// warpgroup, d[4 j + 2 h + i] is of row t / 32 * 16 + t % 32 / 4 + 8 h, column 8 j + t % 4 * 2 + i.
__device__ __forceinline__ void multiply_warpgroup(float (&d)[64], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n}\n"
      : MOESTRO_SUMS_32(0), MOESTRO_SUMS_32(32)
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}
__device__ __forceinline__ void multiply_warpgroup(float (&d)[128], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
      " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
      " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
      " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, 0;\n}\n"
      : MOESTRO_SUMS_32(0), MOESTRO_SUMS_32(32), MOESTRO_SUMS_32(64), MOESTRO_SUMS_32(96)
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

#undef MOESTRO_SUMS_32
#undef MOESTRO_SUMS_8
// clang-format on

#endif

/// Where matrices lie for multiply_warpgroup: rows of 64 bf16 numbers (128 bytes) one after another from a multiple of
/// 1024 bytes, 16-byte pieces of a row exchanged by its number (swizzled_piece). `first` may be 32, 64 or 96 bytes
/// on, for later columns.
__device__ inline uint64_t swizzled_rows(const void* first) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = 1024 >> 4, kUnused = 1;
  return static_cast<uint64_t>((shared_address(first) & 0x3ffff) >> 4) | kUnused << 16 | kEightRows << 32 | kSwizzle128;
}
/// Where piece `piece` of row `row` lies, in bytes.
__device__ constexpr uint32_t swizzled_piece(uint32_t row, uint32_t piece) {
  return row * 128 + ((piece ^ (row & 7)) << 4);
}

}  // namespace moestro::kernels::cuda
