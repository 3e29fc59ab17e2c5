// What stands before and behind attention over latents, in f32: the product of each query with its head's keys'
// weights, and of each sum of latents with its head's values' weights.

#include "kernels/cuda/latent_products.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kQueries = 4;  ///< of one head that a block takes
constexpr int kThreads = 256;

using Queries = HeadQueries<kQueries>;

template <typename W>
__device__ void load_weights(const typename W::Stored* row, int d, int rank, float (&to)[8]) {
  if (rank % 8 == 0 && d < rank) load8<W>(row + d, to);
  else load8_some<W>(row + d, rank - d, to);
}

// --- queries ---

/// Threads have 8 neighbouring columns of a latent each, and those with the same columns take the rows of the weights
/// in turn.
constexpr int kColumnThreads = MOESTRO_CUDA_LATENT_RANK_MAX / 8, kTurns = kThreads / kColumnThreads;

struct AbsorbRoom {
  float q[kQueries][MOESTRO_CUDA_LATENT_HEAD_MAX];
  float sums[kTurns][kQueries][MOESTRO_CUDA_LATENT_RANK_MAX];
};

template <typename W, typename Out>
__global__ void __launch_bounds__(kThreads) absorb_kernel(MoestroCudaLatentAttention a) {
  auto& room = *reinterpret_cast<AbsorbRoom*>(shared_memory());
  const Queries of(a);
  const MoestroCudaLatent& l = a.latent;
  const int nope = static_cast<int>(l.nope_dim), rank = static_cast<int>(l.kv_rank);
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * nope; i += kThreads) {
    const int query = i / nope, d = i % nope;
    float q = 0.0f;
    if (query < of.count) q = a.q[of.row(a, query) * (l.nope_dim + l.rope_dim) + d];
    room.q[query][d] = q;
  }
  rotate_queries<Out>(a, of);
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) % kColumnThreads * 8,
            turn = static_cast<int>(threadIdx.x) / kColumnThreads;
  const typename W::Stored* weights = head_weights<W>(a, of.head, 0);
  float sums[kQueries][8] = {};
  if (column < rank) {
    MOESTRO_UNROLL_BY(8)
    for (int d = turn; d < nope; d += kTurns) {
      float w[8];
      load_weights<W>(weights + static_cast<int64_t>(d) * rank, column, rank, w);
      MOESTRO_UNROLL
      for (int query = 0; query < kQueries; ++query) {
        MOESTRO_UNROLL
        for (int e = 0; e < 8; ++e) sums[query][e] = multiply_add(room.q[query][d], w[e], sums[query][e]);
      }
    }
  }
  MOESTRO_UNROLL
  for (int query = 0; query < kQueries; ++query) {
    MOESTRO_UNROLL
    for (int e = 0; e < 8; ++e) room.sums[turn][query][column + e] = sums[query][e];
  }
  __syncthreads();
  const int width = latent_width(rank);
  for (int i = static_cast<int>(threadIdx.x); i < of.count * width; i += kThreads) {
    const int query = i / width, d = i % width;
    float sum = 0.0f;
    MOESTRO_UNROLL
    for (int t = 0; t < kTurns; ++t) sum += room.sums[t][query][d];
    static_cast<typename Out::Stored*>(a.absorbed)[of.pair(a, query) * (width + kLatentRope) + d] = Out::stored(sum);
  }
}

// --- values ---

constexpr int kRows = 4;  ///< of the weights that a warp reads together
constexpr int kWarps = kThreads / kWarp, kBlockRows = 4 * kWarps;  ///< rows of a block
static_assert(kRows * kQueries == 16);

template <typename W>
__global__ void __launch_bounds__(kThreads) expand_values_kernel(MoestroCudaLatentAttention a) {
  auto* room = reinterpret_cast<float*>(shared_memory());  // [queries][kv_rank], then zeros to whole warps' columns
  const Queries of(a);
  const MoestroCudaLatent& l = a.latent;
  const int rank = static_cast<int>(l.kv_rank), width = latent_width(rank);
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * width; i += kThreads) {
    const int query = i / width, d = i % width;
    room[i] = query < of.count && d < rank ? a.attended[of.pair(a, query) * rank + d] : 0.0f;
  }
  __syncthreads();
  const int first = (static_cast<int>(blockIdx.y) * kWarps + warp_id()) * kRows, values = static_cast<int>(l.value_dim);
  if (first >= values) return;
  const typename W::Stored* weights = head_weights<W>(a, of.head, l.nope_dim);
  float dots[kRows * kQueries] = {};
  for (int d = lane_id() * 8; d < width; d += kWarp * 8) {
    float w[kRows][8];
    MOESTRO_UNROLL
    for (int r = 0; r < kRows; ++r)
      load_weights<W>(weights + static_cast<int64_t>(at_most(first + r, values - 1)) * rank, d, rank, w[r]);
    MOESTRO_UNROLL
    for (int query = 0; query < kQueries; ++query) {
      float x[8];
      load8<F32>(room + query * width + d, x);
      MOESTRO_UNROLL
      for (int r = 0; r < kRows; ++r) {
        MOESTRO_UNROLL
        for (int e = 0; e < 8; ++e)
          dots[r * kQueries + query] = multiply_add(x[e], w[r][e], dots[r * kQueries + query]);
      }
    }
  }
  reduce_scatter<kRows * kQueries, 1, kWarp / 2>(dots);
  const float sum = dots[0] + __shfl_xor_sync(kWholeWarp, dots[0], 1);
  const int which = lane_id() / 2, value = first + which / kQueries, query = which % kQueries;
  if (lane_id() % 2 != 0 || value >= values || query >= of.count) return;
  a.out[of.row(a, query) * l.value_dim + value] = sum;
}

template <typename W>
MoestroCudaResult absorb(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  const dim3 grid(static_cast<unsigned>(Queries::blocks_of(a) * a.latent.heads));
  if (a.rounded) return launch(absorb_kernel<W, BF16>, grid, dim3(kThreads), sizeof(AbsorbRoom), stream, a);
  return launch(absorb_kernel<W, F32>, grid, dim3(kThreads), sizeof(AbsorbRoom), stream, a);
}

template <typename W>
MoestroCudaResult expand(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  const dim3 grid(static_cast<unsigned>(Queries::blocks_of(a) * a.latent.heads),
                  static_cast<unsigned>(divided_up(a.latent.value_dim, kBlockRows)));
  const auto shared = static_cast<uint64_t>(kQueries * latent_width(a.latent.kv_rank)) * sizeof(float);
  return launch(expand_values_kernel<W>, grid, dim3(kThreads), shared, stream, a);
}

/// With more queries than a block takes, weights are read again.
bool of_many(const MoestroCudaLatentAttention& a) { return a.rounded && a.query_count > kQueries; }

}  // namespace

MoestroCudaResult absorb_queries(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  if (of_many(a)) return absorb_many_queries(a, stream);
  switch (a.kv_b_dtype) {
    case MOESTRO_CUDA_F32: return absorb<F32>(a, stream);
    case MOESTRO_CUDA_BF16: return absorb<BF16>(a, stream);
    case MOESTRO_CUDA_F16: return absorb<F16>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

MoestroCudaResult expand_values(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  if (of_many(a)) return expand_many_values(a, stream);
  switch (a.kv_b_dtype) {
    case MOESTRO_CUDA_F32: return expand<F32>(a, stream);
    case MOESTRO_CUDA_BF16: return expand<BF16>(a, stream);
    case MOESTRO_CUDA_F16: return expand<F16>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda
