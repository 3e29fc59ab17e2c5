// Between the products of q, k and v and attention: the norm of each head, its rotation, and keys and values into the
// cache. A warp for each query and head; the head lies in shared memory.

#include "kernels/cuda/kv_row.h"
#include "kernels/cuda/row_norm.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;
constexpr int kHeadQuads = MOESTRO_CUDA_HEAD_DIM_MAX / (4 * kWarp);

/// A head of q, k or v, from `from` to `to`, as a norm of such rows has it. kWhole: four numbers are loaded at once.
template <bool kWhole>
__device__ void norm_head(const float* from, int64_t dim, const float* weight, float eps, float* to) {
  const RowPart<RowForm<kHeadQuads, kWhole>> part{static_cast<int32_t>(dim), lane_id(), kWarp};
  float x[kHeadQuads][4], w[kHeadQuads][4];
  load_part(part, from, x);
  if (weight) {
    load_part(part, weight, w);
    scale_part(norm_scale(warp_sum(part_squares(x)), dim, eps), w, x);
  }
  store_part(part, x, to);
  __syncwarp();
}

/// The head `x` in shared memory, rotated for row `row`, to `to`, which may be x.
__device__ void rotate_head(const MoestroCudaPlaceHeads& a, const float* cos, const float* sin, int64_t row,
                            const float* x, float* to) {
  const int64_t half = a.rotary_dim / 2;
  for (int64_t j = lane_id(); j < half; j += kWarp) {
    const float c = cos[row * half + j], s = sin[row * half + j], first = x[j], second = x[j + half];
    to[j] = rotated_first(first, second, c, s);
    to[j + half] = rotated_second(first, second, c, s);
  }
  for (int64_t d = a.rotary_dim + lane_id(); d < a.kv.head_dim; d += kWarp) to[d] = x[d];
  __syncwarp();
}

template <bool kWhole>
__global__ void __launch_bounds__(kWarps * kWarp) place_heads_kernel(MoestroCudaPlaceHeads a) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id(), heads = a.kv.heads,
                kv_heads = a.kv.kv_heads, all = heads + 2 * kv_heads, dim = a.kv.head_dim;
  after_predecessors();
  let_next_begin();
  if (warp >= a.count * all) return;
  float* x = reinterpret_cast<float*>(shared_memory()) + warp_id() * divided_up(dim, 4) * 4;
  const MoestroCudaQuery query = a.queries[warp / all];
  const int64_t row = query.row, head = warp % all;
  if (head < heads) {
    const int64_t at = (row * heads + head) * dim;
    norm_head<kWhole>(a.q + at, dim, a.q_norm, a.eps, x);
    if (a.sink_q) rotate_head(a, a.sink_cos, a.sink_sin, row, x, a.sink_q + at);
    return rotate_head(a, a.cos, a.sin, row, x, a.q + at);
  }
  const int64_t value = (head - heads) / kv_heads, kv_head = (head - heads) % kv_heads,
                at = (row * kv_heads + kv_head) * dim;
  norm_head<kWhole>((value ? a.v : a.k) + at, dim, value ? nullptr : a.k_norm, a.eps, x);
  if (!value) rotate_head(a, a.cos, a.sin, row, x, x);
  store_kv_row(a.kv, kv_row(a.kv, query, a.blocks, kv_head, value, x));
}

}  // namespace

MoestroCudaResult place_heads(const MoestroCudaPlaceHeads* a, MoestroCudaStream stream) {
  const MoestroCudaKv& kv = a->kv;
  if (kv.dtype < MOESTRO_CUDA_F32 || kv.dtype > MOESTRO_CUDA_INT8 || kv.head_dim > MOESTRO_CUDA_HEAD_DIM_MAX)
    return MOESTRO_CUDA_REFUSED;
  static_assert(MOESTRO_CUDA_HEAD_DIM_MAX <= kWarpRow, "a head is a warp's row");
  const int64_t warps = a->count * (kv.heads + 2 * kv.kv_heads);
  const auto room = static_cast<uint64_t>(kWarps * divided_up(kv.head_dim, 4) * 4) * sizeof(float);
  const bool whole = kv.head_dim % 4 == 0 && is_aligned16({a->q, a->k, a->v, a->q_norm, a->k_norm});
  return launch_early(whole ? place_heads_kernel<true> : place_heads_kernel<false>,
                      dim3(static_cast<unsigned>(divided_up(warps, kWarps))), dim3(kWarps * kWarp), room, stream, *a);
}

}  // namespace moestro::kernels::cuda
