#pragma once
// Arguments of the CUDA plugin's operations of sequence mixers other than grouped attention: the gated delta rule and
// latent attention. As op_abi.h, which includes this.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct MoestroCudaQuery;

/// A sequence of a step for MoestroCudaDelta: rows [first_row, first_row + tokens).
struct MoestroCudaDeltaSequence {
  int32_t first_row, tokens;
  int32_t state;                ///< slot of its state before the first; -1: zeros
  int32_t first_write, writes;  ///< of `writes`: where its states go
  int32_t kept;                 ///< its place in `kept`; -1: the slot that it reads is not written
  int32_t first_chunk, chunks;  ///< of `chunks`; none: its rows are computed one after another
};
/// Rows of a sequence that are computed together, at most MOESTRO_CUDA_DELTA_CHUNK. A sequence's chunks follow each
/// other, and each of its states is after the last row of one.
struct MoestroCudaDeltaChunk {
  int32_t first_row, rows;
};
/// After so many tokens of the step; ascending within a sequence.
struct MoestroCudaDeltaWrite {
  int32_t tokens, slot;
};
struct MoestroCudaDeltaRow {
  int32_t row, sequence;
};
#define MOESTRO_CUDA_DELTA_KEY_MAX 128
#define MOESTRO_CUDA_DELTA_CONV_MAX 16
/// Columns of a state that a block computes.
#define MOESTRO_CUDA_DELTA_STRIP 32
#define MOESTRO_CUDA_DELTA_CHUNK 64
/// Workspace of a chunk and value head.
#define MOESTRO_CUDA_DELTA_CHUNK_BYTES 25344

/// The gated delta rule, as Ops::gated_delta; q, k and v are only read.
struct MoestroCudaDelta {
  int64_t key_heads, value_heads;
  int64_t key_dim, value_dim;  ///< key_dim: at most MOESTRO_CUDA_DELTA_KEY_MAX
  int64_t conv;                ///< at most MOESTRO_CUDA_DELTA_CONV_MAX
  int32_t in_turn;             ///< as DeltaShape::in_turn
  const float *q, *k, *v, *a, *b;
  const float *conv_weight, *a_log, *dt_bias;
  const struct MoestroCudaDeltaSequence* sequences;  ///< those of one token, others without chunks, those with chunks
  int64_t singles, prompts, chunked;                 ///< how many of each
  const struct MoestroCudaDeltaWrite* writes;
  const struct MoestroCudaDeltaRow* rows;  ///< of all sequences
  int64_t row_count;
  float* states;
  float* out;
  /// Workspace: for each row up to the highest, key_heads * 2 * MOESTRO_CUDA_DELTA_KEY_MAX + value_heads * (value_dim
  /// rounded up to MOESTRO_CUDA_DELTA_STRIP + 4) floats.
  float* prepared;
  const struct MoestroCudaDeltaChunk* chunks;
  int64_t chunk_count;
  void* chunk_tiles;  ///< workspace: MOESTRO_CUDA_DELTA_CHUNK_BYTES for each chunk and value head
  /// May be null. Room for slots: states of sequences whose `kept` is not -1, as they were before. With `again` they
  /// are read from here, so that a step that has overwritten them can be computed once more.
  float* kept;
  int32_t again;
};

/// gate[i] = silu(gate[i]) * RMSNorm(x)[i], for n rows of x.
struct MoestroCudaGatedNorm {
  const float* x;
  int64_t n, dim;
  const float* weight;
  float eps;
  float* gate;
};

/// x[i] *= sigmoid(gate[i]).
struct MoestroCudaSigmoidMul {
  float* x;
  const float* gate;
  int64_t count;
};

/// One layer's cache of latents, in the layout of kernels/ops.h (LatentShape), and what is computed with it.
struct MoestroCudaLatent {
  int64_t heads, kv_rank, nope_dim, rope_dim, value_dim;
  int32_t interleaved;
  float scale;
  int32_t dtype;
  void* data;
  int64_t block_bytes, scales_offset;
};
#define MOESTRO_CUDA_LATENT_RANK_MAX 512
#define MOESTRO_CUDA_LATENT_ROPE_MAX 64
/// The most components without rotation, and the most of a value.
#define MOESTRO_CUDA_LATENT_HEAD_MAX 512

/// As Ops::latent_write.
struct MoestroCudaLatentWrite {
  struct MoestroCudaLatent latent;
  const struct MoestroCudaQuery* queries;
  const uint32_t* blocks;
  int64_t count;
  const float *kv, *norm;
  float eps;
  const float *cos, *sin;
};

/// Pairs [first_pair, first_pair + pairs) of one sequence, pair p being head p % heads of query p / heads. Its
/// positions are visited in tiles of MOESTRO_CUDA_LATENT_TILE from position 0 up to that of its last pair; first_tile:
/// the tiles of all units before it that have the same number among their `groups`.
struct MoestroCudaLatentUnit {
  int32_t first_pair, pairs, first_tile;
};
/// Of a unit. On tensor cores: MOESTRO_CUDA_LATENT_TILE_PAIRS, or half as many.
#define MOESTRO_CUDA_LATENT_PAIRS 8
#define MOESTRO_CUDA_LATENT_TILE_PAIRS 32
#define MOESTRO_CUDA_LATENT_TILE 32
/// The most blocks that share units on tensor cores.
#define MOESTRO_CUDA_LATENT_BLOCKS 264
/// Numbers of an absorbed query: the latent's, filled up with zeros to half of MOESTRO_CUDA_LATENT_RANK_MAX or all of
/// it, then MOESTRO_CUDA_LATENT_ROPE_MAX with those that are rotated.
#define MOESTRO_CUDA_LATENT_WIDTH(rank) \
  (((rank) <= MOESTRO_CUDA_LATENT_RANK_MAX / 2 ? 1 : 2) * (MOESTRO_CUDA_LATENT_RANK_MAX / 2) + \
   MOESTRO_CUDA_LATENT_ROPE_MAX)

/// As Ops::latent_attention, absorbed: queries are multiplied by their heads' keys, meet latents, and the sums of
/// latents are multiplied by their heads' values.
struct MoestroCudaLatentAttention {
  struct MoestroCudaLatent latent;
  const struct MoestroCudaQuery* queries;
  int64_t query_count;
  const uint32_t* blocks;
  const struct MoestroCudaLatentUnit* units;
  int64_t unit_count;
  int64_t groups;      ///< 1, or so many neighbouring units share a query, each with some of its heads
  int32_t pairs_most;  ///< of any unit
  /// On tensor cores: everything is rounded to bf16 but sums and scores. kv_rank and rope_dim are multiples of 8.
  int32_t rounded;
  const float *q, *cos, *sin;
  const void* kv_b;
  int32_t kv_b_dtype;  ///< f32, bf16 or f16
  void* absorbed;      ///< [pairs of all queries][MOESTRO_CUDA_LATENT_WIDTH] of f32; rounded: of bf16
  float* attended;     ///< [pairs of all queries][kv_rank]
  /// Results of parts of the positions, each of kv_rank + MOESTRO_CUDA_PARTIAL_HEAD floats. In f32: of all pairs, for
  /// each of `parts` parts of MOESTRO_CUDA_ATTENTION_PART positions; null: one part after another, with the same bits.
  /// Rounded: 2 * MOESTRO_CUDA_LATENT_BLOCKS of a unit's most pairs.
  float* partial;
  int64_t parts;  ///< of the furthest query, or more
  float* out;
};

#ifdef __cplusplus
}
#endif
