// What stands before and behind attention over latents, of many queries on tensor cores: as latent_products.cu, with
// queries, sums of latents and weights rounded to bf16. A block takes 64 queries of a head and 64 outputs.

#include <type_traits>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/bf16_pairs.h"
#include "kernels/cuda/latent_products.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kThreads = 128, kQueries = 64, kColumns = 64, kDepth = 64;
constexpr int kTiles = 2, kOutputs = 4;  ///< of a warp: 32 queries, 32 columns
constexpr int kRow = kDepth + 8;         ///< an odd number of 16 bytes: rows begin in different banks
static_assert(kColumns == kDepth);

using Queries = HeadQueries<kQueries>;

struct alignas(16) Room {
  uint16_t x[kQueries][kRow];
  uint16_t weights[kColumns][kRow];  ///< as they lie in memory
};

/// Rows of 64 weights, zeros outside of [0, rows) and [0, columns), a multiple of 8.
template <typename W>
__device__ void fill_weights(Room& room, const typename W::Stored* from, int64_t stride, int rows, int columns) {
  for (int i = static_cast<int>(threadIdx.x); i < kColumns * kDepth / 8; i += kThreads) {
    const int row = i / (kDepth / 8), d = i % (kDepth / 8) * 8;
    const bool there = row < rows && d < columns;
    const typename W::Stored* eight = from + (there ? row * stride + d : 0);
    if constexpr (std::is_same_v<W, BF16>) {
      copy_async16(&room.weights[row][d], eight, there ? 16 : 0);
    } else {
      float values[8] = {};
      if (there) load8<W>(eight, values);
      Bytes16 words;
      MOESTRO_UNROLL
      for (int w = 0; w < 4; ++w) words.words[w] = bf16_pair(values[2 * w], values[2 * w + 1]);
      store_as(&room.weights[row][d], words);
    }
  }
  if constexpr (std::is_same_v<W, BF16>) commit_copies();
}

/// row_of(i): the row of query i. Numbers from `depth` on are zeros.
template <typename RowOf>
__device__ void fill_x(Room& room, int count, int depth, const RowOf& row_of) {
  for (int i = static_cast<int>(threadIdx.x); i < kQueries * kDepth / 2; i += kThreads) {
    const int query = i / (kDepth / 2), d = i % (kDepth / 2) * 2;
    float two[2] = {};
    if (query < count) {
      const float* from = row_of(query) + d;
      two[0] = d < depth ? from[0] : 0.0f;
      two[1] = d + 1 < depth ? from[1] : 0.0f;
    }
    store_as(&room.x[query][d], bf16_pair(two[0], two[1]));
  }
}

/// kTurned: weights lie in rows along the outputs, not along the depth.
template <bool kTurned>
__device__ void multiply(const Room& room, float (&sums)[kTiles][kOutputs][4]) {
  const int lane = lane_id(), first_query = warp_id() / 2 * 32, first_column = warp_id() % 2 * 32;
  MOESTRO_UNROLL
  for (int step = 0; step < kDepth; step += 16) {
    uint32_t x[kTiles][4];
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTiles; ++tile)
      load_matrices(x[tile], &room.x[first_query + tile * 16 + lane % 16][step + lane / 16 * 8]);
    MOESTRO_UNROLL
    for (int n = 0; n < kOutputs; n += 2) {
      const int column = first_column + n * 8;
      uint32_t w[4];
      if constexpr (kTurned)
        load_matrices_turned(w, &room.weights[step + lane % 16][column + lane / 16 * 8]);
      else
        load_matrices(w, &room.weights[column + lane / 16 * 8 + lane % 8][step + lane / 8 % 2 * 8]);
      const uint32_t left[2] = {w[0], w[1]}, right[2] = {w[2], w[3]};
      MOESTRO_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        multiply_tiles(sums[tile][n], x[tile], left);
        multiply_tiles(sums[tile][n + 1], x[tile], right);
      }
    }
  }
}

/// write(query, column, two): two neighbouring outputs, also of queries and columns that there are not.
template <typename Write>
__device__ void for_outputs(const float (&sums)[kTiles][kOutputs][4], const Write& write) {
  MOESTRO_UNROLL
  for (int tile = 0; tile < kTiles; ++tile) {
    MOESTRO_UNROLL
    for (int n = 0; n < kOutputs; ++n) {
      MOESTRO_UNROLL
      for (int half = 0; half < 2; ++half)
        write(warp_id() / 2 * 32 + tile * 16 + half * 8 + lane_id() / 4,
              warp_id() % 2 * 32 + n * 8 + lane_id() % 4 * 2, sums[tile][n][half * 2], sums[tile][n][half * 2 + 1]);
    }
  }
}

template <typename W>
__global__ void __launch_bounds__(kThreads) absorb_many_kernel(MoestroCudaLatentAttention a) {
  auto& room = *reinterpret_cast<Room*>(shared_memory());
  const Queries of(a);
  const MoestroCudaLatent& l = a.latent;
  const int nope = static_cast<int>(l.nope_dim), rank = static_cast<int>(l.kv_rank), width = latent_width(rank),
            first = static_cast<int>(blockIdx.y) * kColumns;
  const typename W::Stored* weights = head_weights<W>(a, of.head, 0);
  float sums[kTiles][kOutputs][4] = {};
  for (int depth = 0; depth < nope; depth += kDepth) {
    if (depth > 0) __syncthreads();
    fill_weights<W>(room, weights + static_cast<int64_t>(depth) * rank + first, rank, nope - depth, rank - first);
    fill_x(room, of.count, nope - depth,
           [&](int query) { return a.q + of.row(a, query) * (l.nope_dim + l.rope_dim) + depth; });
    wait_copies<0>();
    __syncthreads();
    multiply<true>(room, sums);
  }
  auto* absorbed = static_cast<uint16_t*>(a.absorbed);
  for_outputs(sums, [&](int query, int column, float left, float right) {
    if (query < of.count)
      store_as(absorbed + of.pair(a, query) * (width + kLatentRope) + first + column, bf16_pair(left, right));
  });
  if (first == 0) rotate_queries<BF16>(a, of);
}

template <typename W>
__global__ void __launch_bounds__(kThreads) expand_many_kernel(MoestroCudaLatentAttention a) {
  auto& room = *reinterpret_cast<Room*>(shared_memory());
  const Queries of(a);
  const MoestroCudaLatent& l = a.latent;
  const int rank = static_cast<int>(l.kv_rank), values = static_cast<int>(l.value_dim),
            first = static_cast<int>(blockIdx.y) * kColumns;
  const typename W::Stored* weights = head_weights<W>(a, of.head, l.nope_dim + first);
  float sums[kTiles][kOutputs][4] = {};
  for (int depth = 0; depth < rank; depth += kDepth) {
    if (depth > 0) __syncthreads();
    fill_weights<W>(room, weights + depth, rank, values - first, rank - depth);
    fill_x(room, of.count, rank - depth, [&](int query) { return a.attended + of.pair(a, query) * rank + depth; });
    wait_copies<0>();
    __syncthreads();
    multiply<false>(room, sums);
  }
  for_outputs(sums, [&](int query, int column, float left, float right) {
    if (query >= of.count) return;
    float* to = a.out + of.row(a, query) * values + first + column;
    if (first + column < values) to[0] = left;
    if (first + column + 1 < values) to[1] = right;
  });
}

dim3 grid_of(const MoestroCudaLatentAttention& a, int64_t columns) {
  return dim3(static_cast<unsigned>(Queries::blocks_of(a) * a.latent.heads),
              static_cast<unsigned>(divided_up(columns, kColumns)));
}

}  // namespace

MoestroCudaResult absorb_many_queries(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  const dim3 grid = grid_of(a, latent_width(a.latent.kv_rank));
  switch (a.kv_b_dtype) {
    case MOESTRO_CUDA_F32: return launch(absorb_many_kernel<F32>, grid, dim3(kThreads), sizeof(Room), stream, a);
    case MOESTRO_CUDA_BF16: return launch(absorb_many_kernel<BF16>, grid, dim3(kThreads), sizeof(Room), stream, a);
    case MOESTRO_CUDA_F16: return launch(absorb_many_kernel<F16>, grid, dim3(kThreads), sizeof(Room), stream, a);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

MoestroCudaResult expand_many_values(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  const dim3 grid = grid_of(a, a.latent.value_dim);
  switch (a.kv_b_dtype) {
    case MOESTRO_CUDA_F32: return launch(expand_many_kernel<F32>, grid, dim3(kThreads), sizeof(Room), stream, a);
    case MOESTRO_CUDA_BF16: return launch(expand_many_kernel<BF16>, grid, dim3(kThreads), sizeof(Room), stream, a);
    case MOESTRO_CUDA_F16: return launch(expand_many_kernel<F16>, grid, dim3(kThreads), sizeof(Room), stream, a);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda
