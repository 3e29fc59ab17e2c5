#pragma once
// Maps for copy_box: boxes of kBoxRows rows of 64 bf16 numbers.

#include "kernels/cuda/hopper.h"
#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

#if defined(__CUDACC__)

/// Three dimensions, the first of adjacent numbers; strides of the others in bytes. 0, or MOESTRO_CUDA_REFUSED: the
/// driver makes no such map.
inline MoestroCudaResult make_map(uint64_t first, const uint64_t (&sizes)[3], const uint64_t (&strides)[2],
                                  TensorMap& out) {
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
  const cuuint64_t size[3] = {sizes[0], sizes[1], sizes[2]}, stride[2] = {strides[0], strides[1]};
  const cuuint32_t box[3] = {64, kBoxRows, 1}, steps[3] = {1, 1, 1};
  const CUresult result = encode(&out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, reinterpret_cast<void*>(first), size,
                                 stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? 0 : MOESTRO_CUDA_REFUSED;
}

#else

inline MoestroCudaResult make_map(uint64_t first, const uint64_t (&sizes)[3], const uint64_t (&strides)[2],
                                  TensorMap& out) {
  out = {first, {sizes[0], sizes[1], sizes[2]}, {strides[0], strides[1]}};
  return 0;
}

#endif

/// A matrix: c0 is the column, c1 the row; rows behind the last are zeros.
inline MoestroCudaResult make_row_map(const void* matrix, int64_t rows, int64_t cols, TensorMap& out) {
  const auto pitch = static_cast<uint64_t>(cols) * 2;
  return make_map(reinterpret_cast<uint64_t>(matrix), {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), 1},
                  {pitch, pitch}, out);
}

/// Boxes whose rows are `pitch` bytes apart, from anywhere: experts lie in slots that only the device knows, so the map
/// is not of an expert but of all addresses. A box at byte b behind kMapBase has c0 = b % kMapPage / 2, c1 = 0 and
/// c2 = b / kMapPage; the dimensions overlap.
inline MoestroCudaResult make_address_map(int64_t pitch, TensorMap& out) {
  return make_map(kMapBase, {kMapPage / 2 + 64, kBoxRows, uint64_t{1} << 31}, {static_cast<uint64_t>(pitch), kMapPage},
                  out);
}

}  // namespace moestro::kernels::cuda
