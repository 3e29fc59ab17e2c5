#pragma once
// The gated delta rule for chunks of up to 64 rows. With S the state before a chunk, g[t] the product of the decays up
// to row t, r[t] its rate, and d[t] what row t adds to the state (k[t] times d[t]):
//
//   d = r (v - g K S) - A d,   A[t][i] = r[t] g[t] / g[i] (k[t] k[i]) for i < t,   so   d = T r (v - g K S)
//   out = g Q S + P d,         P[t][i] = g[t] / g[i] (q[t] k[i]) for i <= t
//   S = g[last] S + K' (g[last] / g d)
//
// T is the inverse of I + A (Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence Length"
// and "Gated Delta Networks"). T and P depend on no state: delta_chunks.cu computes them for all chunks at once, and
// delta_walk.cu takes states through the chunks.

#include "kernels/cuda/delta.h"

namespace moestro::kernels::cuda {

inline constexpr int kDeltaChunk = MOESTRO_CUDA_DELTA_CHUNK;

/// Of a chunk and value head. Rows behind a chunk's last have a rate of 0 and a decay of 1. In matrices, what is right
/// of the tiles of 16 by 16 on the diagonal is not written and not read.
struct alignas(16) DeltaChunkTiles {
  uint16_t high[kDeltaChunk][kDeltaChunk];  ///< T as bf16
  uint16_t low[kDeltaChunk][kDeltaChunk];   ///< and what that leaves of it
  uint16_t read[kDeltaChunk][kDeltaChunk];  ///< P as bf16
  float rate[kDeltaChunk];
  float decay[kDeltaChunk];  ///< g
  float left[kDeltaChunk];   ///< g[last] / g
};
static_assert(sizeof(DeltaChunkTiles) == MOESTRO_CUDA_DELTA_CHUNK_BYTES);

__device__ inline DeltaChunkTiles* delta_tiles(const MoestroCudaDelta& a, int64_t chunk, int64_t head) {
  return static_cast<DeltaChunkTiles*>(a.chunk_tiles) + chunk * a.value_heads + head;
}

/// For all chunks, before states are taken through them.
int32_t delta_chunk_tiles(const MoestroCudaDelta& a, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda
