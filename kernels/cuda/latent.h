#pragma once
// What the kernels of latent attention have in common: where a position's latent and rotated key lie, and what pairs of
// a query and a head see. (docs/decisions/0038, 0050)

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/numbers.h"
#include "kernels/cuda/ops.h"

namespace moestro::kernels::cuda {

inline constexpr int kLatentTile = MOESTRO_CUDA_LATENT_TILE;
inline constexpr int kLatentRope = MOESTRO_CUDA_LATENT_ROPE_MAX;
inline constexpr int kLatentHalfRank = MOESTRO_CUDA_LATENT_RANK_MAX / 2;

/// Numbers before the rotated ones of an absorbed query.
__host__ __device__ constexpr int latent_width(int64_t rank) {
  return static_cast<int>(MOESTRO_CUDA_LATENT_WIDTH(rank)) - kLatentRope;
}
/// Floats of a part's result.
__host__ __device__ constexpr int64_t latent_part_floats(int64_t rank) { return rank + MOESTRO_CUDA_PARTIAL_HEAD; }

/// The latents and the rotated keys of a block, of 16 positions.
template <typename N>
struct LatentRows {
  const typename N::Stored *latents, *keys;
  const float* scales;  ///< int8: of 16 latents, then of 16 keys

  __device__ LatentRows(const MoestroCudaLatent& l, uint32_t block) {
    const char* at = static_cast<const char*>(l.data) + l.block_bytes * block;
    latents = reinterpret_cast<const typename N::Stored*>(at);
    keys = latents + kTokensOfBlock * l.kv_rank;
    scales = reinterpret_cast<const float*>(at + l.scales_offset);
  }
};

__device__ inline const MoestroCudaQuery& latent_query(const MoestroCudaLatentAttention& a, int pair) {
  return a.queries[pair / static_cast<int>(a.latent.heads)];
}

/// A unit with what its queries say.
struct LatentSpan {
  int first_pair = 0, pairs = 0;
  int first_position = 0, last_position = -1;  ///< of its pairs, whose positions ascend
  const uint32_t* blocks = nullptr;            ///< of its sequence

  __device__ int tiles() const { return last_position / kLatentTile + 1; }
};
__device__ inline LatentSpan latent_span(const MoestroCudaLatentAttention& a, int64_t unit) {
  const MoestroCudaLatentUnit u = a.units[unit];
  const MoestroCudaQuery first = latent_query(a, u.first_pair);
  return {u.first_pair, u.pairs, first.position, latent_query(a, u.first_pair + u.pairs - 1).position,
          a.blocks + first.first_block};
}

/// How blocks share the tiles of units on tensor cores. There are `blocks` blocks for each of the `groups` units of an
/// item; block b has the tiles [first_of(b), first_of(b + 1)) of all items in their order.
struct LatentShares {
  int tiles, blocks;

  /// With fewer tiles than this a block costs more than it helps.
  static constexpr int kLeastTiles = 4;

  __device__ LatentShares(const MoestroCudaLatentAttention& a, int blocks_most) {
    const int64_t last = a.unit_count - a.groups;  // of the first group: all groups have as many tiles
    tiles = a.units[last].first_tile + latent_span(a, last).tiles();
    blocks = at_most(blocks_most, (tiles + kLeastTiles - 1) / kLeastTiles);
  }
  __device__ int first_of(int block) const { return static_cast<int>(int64_t{tiles} * block / blocks); }
  __device__ int block_of(int tile) const { return static_cast<int>(((int64_t{tile} + 1) * blocks - 1) / tiles); }
};

/// Where a block keeps the result of a unit of which others have parts: of its first unit, if that has begun before, or
/// of its last.
__device__ inline float* latent_partial(const MoestroCudaLatentAttention& a, int block, bool has_begun, int pair) {
  const int64_t slot = 2 * block + (has_begun ? 0 : 1);
  return a.partial + (slot * a.pairs_most + pair) * latent_part_floats(a.latent.kv_rank);
}

/// The item whose tile this is.
__device__ inline int latent_item_of(const MoestroCudaLatentAttention& a, int tile) {
  int low = 0, high = static_cast<int>(a.unit_count) / static_cast<int>(a.groups);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (a.units[middle * a.groups].first_tile <= tile) low = middle;
    else high = middle;
  }
  return low;
}

// The kernels, by what they do; defined in files of these names.

/// Makes `absorbed` of q: each head's keys' weights, and rotation.
MoestroCudaResult absorb_queries(const MoestroCudaLatentAttention& a, MoestroCudaStream stream);
/// Makes `out` of `attended`.
MoestroCudaResult expand_values(const MoestroCudaLatentAttention& a, MoestroCudaStream stream);
/// Makes `attended`, in f32 and on tensor cores.
MoestroCudaResult attend_latent_parts(const MoestroCudaLatentAttention& a, MoestroCudaStream stream);
MoestroCudaResult attend_latent_tiles(const MoestroCudaLatentAttention& a, MoestroCudaStream stream);
/// Puts together the parts that they left in `partial`. blocks: of each group of units.
MoestroCudaResult merge_latent_parts(const MoestroCudaLatentAttention& a, MoestroCudaStream stream);
MoestroCudaResult merge_latent_tiles(const MoestroCudaLatentAttention& a, int blocks, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda
