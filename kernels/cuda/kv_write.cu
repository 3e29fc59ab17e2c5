// New keys and values into their blocks: a warp for each query, KV head, and one of K and V.

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;
constexpr int64_t kBlockTokens = 16;       // kKvBlockTokens
constexpr float kLeastMagnitude = 1e-35f;  // kKvLeastMagnitude

/// Where a warp's row comes from and goes to.
struct Row {
  const float* from;
  char* block;
  int64_t index;  ///< in the block's values and scales
};

__device__ Row row_of(const MoestroCudaKvWrite& a, int64_t warp) {
  const int64_t heads = a.kv.kv_heads, head = warp % heads, value = warp / heads % 2;
  const MoestroCudaQuery query = a.queries[warp / heads / 2];
  const uint32_t block = a.blocks[query.first_block + query.position / kBlockTokens];
  return {(value ? a.v : a.k) + (query.row * heads + head) * a.kv.head_dim,
          static_cast<char*>(a.kv.data) + a.kv.block_bytes * block,
          (value * heads + head) * kBlockTokens + query.position % kBlockTokens};
}

template <typename N>
__device__ void store_row(const MoestroCudaKv& kv, const Row& row) {
  auto* to = reinterpret_cast<typename N::Stored*>(row.block) + row.index * kv.head_dim;
  for (int64_t d = lane_id(); d < kv.head_dim; d += kWarp) to[d] = N::stored(row.from[d]);
}

__device__ void store_int8_row(const MoestroCudaKv& kv, const Row& row) {
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

__global__ void kv_write_kernel(MoestroCudaKvWrite a) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
  if (warp >= a.count * a.kv.kv_heads * 2) return;
  const Row row = row_of(a, warp);
  switch (a.kv.dtype) {
    case MOESTRO_CUDA_F32: return store_row<F32>(a.kv, row);
    case MOESTRO_CUDA_BF16: return store_row<BF16>(a.kv, row);
    case MOESTRO_CUDA_F16: return store_row<F16>(a.kv, row);
    default: return store_int8_row(a.kv, row);
  }
}

}  // namespace

MoestroCudaResult kv_write(const MoestroCudaKvWrite* a, MoestroCudaStream stream) {
  if (a->kv.dtype < MOESTRO_CUDA_F32 || a->kv.dtype > MOESTRO_CUDA_INT8) return MOESTRO_CUDA_REFUSED;
  const int64_t warps = a->count * a->kv.kv_heads * 2;
  return launch(kv_write_kernel, dim3(static_cast<unsigned>(divided_up(warps, kWarps))), kWarps * kWarp, 0, stream, *a);
}

}  // namespace moestro::kernels::cuda
