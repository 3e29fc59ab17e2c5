#pragma once
// What the products before and behind attention over latents have in common: those of a few queries in f32
// (latent_products.cu) and of many on tensor cores (latent_products_rounded.cu). Blocks of one head are neighbours in
// the grid, so that its weights come from memory once.

#include "kernels/cuda/latent.h"

namespace moestro::kernels::cuda {

/// The head of a block and its queries, of which it takes up to kQueries.
template <int kQueries>
struct HeadQueries {
  int head, first, count;

  __device__ explicit HeadQueries(const MoestroCudaLatentAttention& a) {
    const int blocks = blocks_of(a);
    head = static_cast<int>(blockIdx.x) / blocks;
    first = static_cast<int>(blockIdx.x) % blocks * kQueries;
    count = at_most(kQueries, static_cast<int>(a.query_count) - first);
  }
  __device__ int64_t pair(const MoestroCudaLatentAttention& a, int i) const {
    return (first + i) * a.latent.heads + head;
  }
  /// Where query i is in q and out, in heads.
  __device__ int64_t row(const MoestroCudaLatentAttention& a, int i) const {
    return a.queries[first + i].row * a.latent.heads + head;
  }
  __host__ __device__ static int blocks_of(const MoestroCudaLatentAttention& a) {
    return static_cast<int>(divided_up(a.query_count, kQueries));
  }
};

/// The weights of a head's keys (or, `behind` them, of its values), rows of kv_rank.
template <typename W>
__device__ inline const typename W::Stored* head_weights(const MoestroCudaLatentAttention& a, int head,
                                                         int64_t behind) {
  const MoestroCudaLatent& l = a.latent;
  return static_cast<const typename W::Stored*>(a.kv_b) + (head * (l.nope_dim + l.value_dim) + behind) * l.kv_rank;
}

/// The numbers of an absorbed query that come of rotation, with zeros behind them.
template <typename Out, int kQueries>
__device__ inline void rotate_queries(const MoestroCudaLatentAttention& a, const HeadQueries<kQueries>& of) {
  const MoestroCudaLatent& l = a.latent;
  const int half = static_cast<int>(l.rope_dim) / 2, width = latent_width(l.kv_rank);
  auto* absorbed = static_cast<typename Out::Stored*>(a.absorbed);
  for (int i = static_cast<int>(threadIdx.x); i < of.count * kLatentRope / 2; i += static_cast<int>(blockDim.x)) {
    const int query = i / (kLatentRope / 2), j = i % (kLatentRope / 2);
    typename Out::Stored* to = absorbed + of.pair(a, query) * (width + kLatentRope) + width;
    if (j >= half) {  // the numbers behind rope_dim
      to[2 * j] = to[2 * j + 1] = Out::stored(0.0f);
      continue;
    }
    const int64_t row = a.queries[of.first + query].row;
    const float* x = a.q + of.row(a, query) * (l.nope_dim + l.rope_dim) + l.nope_dim;
    const float c = a.cos[row * half + j], s = a.sin[row * half + j];
    const float first = l.interleaved ? x[2 * j] : x[j], second = l.interleaved ? x[2 * j + 1] : x[j + half];
    to[j] = Out::stored(rotated_first(first, second, c, s));
    to[j + half] = Out::stored(rotated_second(first, second, c, s));
  }
}

/// On tensor cores, if queries are rounded; as absorb_queries, expand_values.
MoestroCudaResult absorb_many_queries(const MoestroCudaLatentAttention& a, MoestroCudaStream stream);
MoestroCudaResult expand_many_values(const MoestroCudaLatentAttention& a, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda
