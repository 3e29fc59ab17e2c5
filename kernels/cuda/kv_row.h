#pragma once
// A new key or value of one head into its block of the KV cache, by a warp.

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

inline constexpr int64_t kBlockTokens = 16;       // kKvBlockTokens
inline constexpr float kLeastMagnitude = 1e-35f;  // kKvLeastMagnitude

/// Where it comes from and goes to.
struct KvRow {
  const float* from;
  char* block;
  int64_t index;  ///< in the block's values and scales
};

/// The place of a query's key (`value` 0) or value (1).
__device__ inline KvRow kv_row(const MoestroCudaKv& kv, const MoestroCudaQuery& query, const uint32_t* blocks,
                               int64_t head, int64_t value, const float* from) {
  const uint32_t block = blocks[query.first_block + query.position / kBlockTokens];
  return {from, static_cast<char*>(kv.data) + kv.block_bytes * block,
          (value * kv.kv_heads + head) * kBlockTokens + query.position % kBlockTokens};
}

template <typename N>
__device__ inline void store_row(const MoestroCudaKv& kv, const KvRow& row) {
  auto* to = reinterpret_cast<typename N::Stored*>(row.block) + row.index * kv.head_dim;
  for (int64_t d = lane_id(); d < kv.head_dim; d += kWarp) to[d] = N::stored(row.from[d]);
}

__device__ inline void store_int8_row(const MoestroCudaKv& kv, const KvRow& row) {
  float most = 0.0f;
  bool finite = true;
  for (int64_t d = lane_id(); d < kv.head_dim; d += kWarp) {
    most = fmaxf(most, fabsf(row.from[d]));
    finite = finite && isfinite(row.from[d]);
  }
  most = warp_max(most);
  finite = __ballot_sync(kWholeWarp, finite) == kWholeWarp;
  const bool zeros = !finite || most < kLeastMagnitude;
  if (lane_id() == 0)
    reinterpret_cast<float*>(row.block + kv.scales_offset)[row.index] = !finite ? bits_to_float(0x7fc00000u)
                                                                        : zeros ? 0.0f
                                                                                : most / 127.0f;
  auto* to = reinterpret_cast<int8_t*>(row.block) + row.index * kv.head_dim;
  for (int64_t d = lane_id(); d < kv.head_dim; d += kWarp)
    to[d] = zeros ? int8_t{0} : static_cast<int8_t>(rintf(row.from[d] * (127.0f / most)));
}

/// Rounded as the cache has it.
__device__ inline void store_kv_row(const MoestroCudaKv& kv, const KvRow& row) {
  switch (kv.dtype) {
    case MOESTRO_CUDA_F32: return store_row<F32>(kv, row);
    case MOESTRO_CUDA_BF16: return store_row<BF16>(kv, row);
    case MOESTRO_CUDA_F16: return store_row<F16>(kv, row);
    default: return store_int8_row(kv, row);
  }
}

}  // namespace moestro::kernels::cuda
