#include "kernels/ops.h"

namespace moestro::kernels {

bool is_kv_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kInt8;
}

int64_t kv_scales_offset(const AttentionShape& shape, DType dtype) {
  return 2 * shape.kv_heads * kKvBlockTokens * shape.head_dim * dtype_bytes(dtype);
}

int64_t kv_block_bytes(const AttentionShape& shape, DType dtype) {
  constexpr int64_t kLine = 64;
  const int64_t scales =
      dtype == DType::kInt8 ? 2 * shape.kv_heads * kKvBlockTokens * static_cast<int64_t>(sizeof(float)) : 0;
  return ceil_div(kv_scales_offset(shape, dtype) + scales, kLine) * kLine;
}

}  // namespace moestro::kernels
