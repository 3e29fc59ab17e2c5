#pragma once
// The map through which copy_box reads weights: boxes of 64 x 64 bf16 numbers whose rows are `pitch` bytes apart, from
// anywhere. Experts lie in slots that only the device knows, so a map is not of an expert but of all addresses: a box
// at byte b behind kMapBase has c0 = b % kMapPage / 2, c1 = 0 and c2 = b / kMapPage. Its dimensions overlap.

#include "kernels/cuda/hopper_product.h"

namespace moestro::kernels::cuda {

#if defined(__CUDACC__)

/// 0, or CUDA's error; MOESTRO_CUDA_REFUSED: the driver makes no such map.
inline MoestroCudaResult make_map(int64_t pitch, TensorMap& out) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  if (encode == nullptr) return MOESTRO_CUDA_REFUSED;
  constexpr uint32_t kColumns = kHopperDepth;
  const cuuint64_t sizes[3] = {kMapPage / 2 + kColumns, kBoxRows, uint64_t{1} << 31};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(pitch), kMapPage};
  const cuuint32_t box[3] = {kColumns, kBoxRows, 1}, steps[3] = {1, 1, 1};
  const CUresult result =
      encode(&out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, reinterpret_cast<void*>(kMapBase), sizes, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? 0 : MOESTRO_CUDA_REFUSED;
}

#else

inline MoestroCudaResult make_map(int64_t pitch, TensorMap& out) {
  out = {kMapBase, static_cast<uint64_t>(pitch), kMapPage};
  return 0;
}

#endif

template <typename Form, typename Task>
MoestroCudaResult launch_hopper(const typename Task::Arguments& a, int blocks, MoestroCudaStream stream) {
#if defined(__CUDACC__)
  return launch(hopper_kernel<Form, Task>, dim3(static_cast<unsigned>(blocks)), dim3(kHopperThreads),
                Form::Room::kAsked, stream, a);
#else
  return launch<emulated::kSharedMaxOnHopper>(hopper_kernel<Form, Task>, dim3(static_cast<unsigned>(blocks)),
                                              dim3(kHopperThreads), Form::Room::kAsked, stream, a);
#endif
}

}  // namespace moestro::kernels::cuda
