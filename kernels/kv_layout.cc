#include "kernels/ops.h"

namespace moestro::kernels {

int64_t kv_block_bytes(const AttentionShape& shape, DType dtype) {
  return 2 * shape.kv_heads * kKvBlockTokens * shape.head_dim * dtype_bytes(dtype);
}

}  // namespace moestro::kernels
