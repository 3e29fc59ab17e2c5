#pragma once
// What the two forms of latent attention share (cpu_latent.cc, cpu_latent_expanded.cc).

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace moestro::kernels::cpu {

struct CpuOps::LatentCall {
  const LatentShape& shape;
  const float *q, *cos, *sin;
  const Weight& kv_b;
  const KvView& cache;
  float* out;

  int64_t row_of(const LatentPiece& piece, int64_t query) const {
    return piece.sequence->first_token + piece.first_query + query;
  }
  const float* query(const LatentPiece& piece, int64_t query, int64_t head) const {
    return q + (row_of(piece, query) * shape.heads + head) * shape.query_dim();
  }
  float* result(const LatentPiece& piece, int64_t query, int64_t head) const {
    return out + (row_of(piece, query) * shape.heads + head) * shape.value_dim;
  }
};

/// Where the latents (or the rotated keys) are in block 0.
inline KvPart latent_part(const LatentShape& shape, const KvView& cache, bool key) {
  const char* data = static_cast<const char*>(cache.data);
  return {.values = data + (key ? kKvBlockTokens * shape.kv_rank * dtype_bytes(cache.dtype) : 0),
          .scales = data + latent_scales_offset(shape, cache.dtype) +
                    (key ? kKvBlockTokens * static_cast<int64_t>(sizeof(float)) : 0),
          .block_bytes = latent_block_bytes(shape, cache.dtype)};
}

/// Of the `count` positions from `from` on, those that the query at `position` sees.
inline int64_t seen_of(int64_t position, int64_t from, int64_t count) {
  return std::clamp<int64_t>(position + 1 - from, 0, count);
}

/// Pointers to a task's rows.
struct LatentRows {
  const float *q[kLatentRowsMax], *rope[kLatentRowsMax];
  float* out[kLatentRowsMax];
  int64_t seen[kLatentRowsMax];
  void give_to(LatentTask& task) const { task.q = q, task.q_rope = rope, task.seen = seen, task.out = out; }
};

/// Begins a pair's softmax, or adds the next part to it.
inline void put_part(const KernelTable& kernels, const SoftmaxPart& to, const SoftmaxPart& part, int64_t dim,
                     bool is_first) {
  if (!is_first) return kernels.add_part(to, part, dim);
  std::copy_n(part.out, dim, to.out);
  *to.top = *part.top, *to.sum = *part.sum;
}

}  // namespace moestro::kernels::cpu
