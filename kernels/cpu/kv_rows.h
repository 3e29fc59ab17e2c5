#pragma once
// Vectors in the paged cache.

#include <algorithm>

#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace moestro::kernels::cpu {

/// One position of a part: `part` is where it is in block 0, `block` and `slot` say which position.
inline void store_row(const KernelTable& kernels, DType dtype, const KvPart& part, uint32_t block, int64_t slot,
                      const float* x, int64_t dim) {
  // KvPart is for readers; the cache is the caller's to write.
  char* to = const_cast<char*>(part.values) + part.block_bytes * block + slot * dim * dtype_bytes(dtype);
  if (dtype == DType::kF32) {
    std::copy_n(x, dim, reinterpret_cast<float*>(to));
  } else if (dtype == DType::kInt8) {
    auto* scales = reinterpret_cast<float*>(const_cast<char*>(part.scales) + part.block_bytes * block);
    scales[slot] = kernels.to_int8(x, dim, reinterpret_cast<int8_t*>(to));
  } else {
    (dtype == DType::kF16 ? kernels.to_f16 : kernels.to_bf16)(x, dim, reinterpret_cast<uint16_t*>(to));
  }
}

/// The same position as f32.
inline void load_row(const KernelTable& kernels, DType dtype, const KvPart& part, uint32_t block, int64_t slot,
                     int64_t dim, float* to) {
  const char* row = part.values + part.block_bytes * block + slot * dim * dtype_bytes(dtype);
  if (dtype != DType::kInt8) return kernels.to_f32[static_cast<size_t>(dtype)](row, dim, to);
  const float scale = reinterpret_cast<const float*>(part.scales + part.block_bytes * block)[slot];
  for (int64_t d = 0; d < dim; ++d) to[d] = static_cast<float>(reinterpret_cast<const int8_t*>(row)[d]) * scale;
}

}  // namespace moestro::kernels::cpu
