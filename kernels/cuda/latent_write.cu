// New latents and rotated keys into their blocks: a warp for each query, and for one of the two.

#include "kernels/cuda/kv_row.h"
#include "kernels/cuda/latent.h"
#include "kernels/cuda/row_norm.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

/// row = the norm of the latent x.
__device__ void norm_latent(const MoestroCudaLatentWrite& a, const float* x, float* row) {
  const int rank = static_cast<int>(a.latent.kv_rank);
  float squares = 0.0f;
  for (int d = lane_id(); d < rank; d += kWarp) squares = multiply_add(x[d], x[d], squares);
  const float scale = norm_scale(warp_sum(squares), rank, a.eps);
  for (int d = lane_id(); d < rank; d += kWarp) row[d] = x[d] * scale * a.norm[d];
}

/// row = the key x, rotated, of the step's row `of`.
__device__ void rotate_key(const MoestroCudaLatentWrite& a, int64_t of, const float* x, float* row) {
  const int half = static_cast<int>(a.latent.rope_dim) / 2;
  for (int j = lane_id(); j < half; j += kWarp) {
    const float c = a.cos[of * half + j], s = a.sin[of * half + j];
    const float first = a.latent.interleaved ? x[2 * j] : x[j],
                second = a.latent.interleaved ? x[2 * j + 1] : x[j + half];
    row[j] = rotated_first(first, second, c, s);
    row[j + half] = rotated_second(first, second, c, s);
  }
}

__global__ void latent_write_kernel(MoestroCudaLatentWrite a) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
  after_predecessors();
  let_next_begin();
  if (warp >= a.count * 2) return;
  const MoestroCudaLatent& l = a.latent;
  const bool key = warp % 2 != 0;
  const MoestroCudaQuery query = a.queries[warp / 2];
  const float* x = a.kv + query.row * (l.kv_rank + l.rope_dim);
  float* row = reinterpret_cast<float*>(shared_memory()) + warp_id() * at_least(l.kv_rank, l.rope_dim);
  if (key) rotate_key(a, query.row, x + l.kv_rank, row);
  else norm_latent(a, x, row);
  __syncwarp();
  // As rows of a cache of one head; keys begin behind the latents.
  MoestroCudaKv kv{};
  kv.head_dim = key ? l.rope_dim : l.kv_rank;
  kv.dtype = l.dtype;
  const int64_t number_bytes = l.dtype == MOESTRO_CUDA_F32 ? 4 : l.dtype == MOESTRO_CUDA_INT8 ? 1 : 2,
                before = key ? kTokensOfBlock * l.kv_rank * number_bytes : 0;
  kv.scales_offset = l.scales_offset - before + (key ? kTokensOfBlock * static_cast<int64_t>(sizeof(float)) : 0);
  const uint32_t block = a.blocks[query.first_block + query.position / kTokensOfBlock];
  store_kv_row(kv, {row, static_cast<char*>(l.data) + l.block_bytes * block + before,
                    query.position % kTokensOfBlock});
}

}  // namespace

MoestroCudaResult latent_write(const MoestroCudaLatentWrite* a, MoestroCudaStream stream) {
  const MoestroCudaLatent& l = a->latent;
  if (l.dtype < MOESTRO_CUDA_F32 || l.dtype > MOESTRO_CUDA_INT8 || l.kv_rank > MOESTRO_CUDA_LATENT_RANK_MAX ||
      l.rope_dim > MOESTRO_CUDA_LATENT_ROPE_MAX)
    return MOESTRO_CUDA_REFUSED;
  const auto shared = kWarps * static_cast<uint64_t>(at_least(l.kv_rank, l.rope_dim)) * sizeof(float);
  return launch_early(latent_write_kernel, dim3(static_cast<unsigned>(divided_up(a->count * 2, kWarps))),
                      dim3(kWarps * kWarp), shared, stream, *a);
}

}  // namespace moestro::kernels::cuda
