// New keys and values into their blocks: a warp for each query, KV head, and one of K and V.

#include "kernels/cuda/kv_row.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

__global__ void kv_write_kernel(MoestroCudaKvWrite a) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id(), heads = a.kv.kv_heads;
  after_predecessors();
  let_next_begin();
  if (warp >= a.count * heads * 2) return;
  const int64_t head = warp % heads, value = warp / heads % 2;
  const MoestroCudaQuery query = a.queries[warp / heads / 2];
  const float* from = (value ? a.v : a.k) + (query.row * heads + head) * a.kv.head_dim;
  store_kv_row(a.kv, kv_row(a.kv, query, a.blocks, head, value, from));
}

}  // namespace

MoestroCudaResult kv_write(const MoestroCudaKvWrite* a, MoestroCudaStream stream) {
  if (a->kv.dtype < MOESTRO_CUDA_F32 || a->kv.dtype > MOESTRO_CUDA_INT8) return MOESTRO_CUDA_REFUSED;
  const int64_t warps = a->count * a->kv.kv_heads * 2;
  return launch_early(kv_write_kernel, dim3(static_cast<unsigned>(divided_up(warps, kWarps))), dim3(kWarps * kWarp), 0,
                      stream, *a);
}

}  // namespace moestro::kernels::cuda
