#pragma once
// The operations of the CUDA plugin: one plain struct of arguments each. kernels/ops.h says what they compute; this
// file says what differs on a device. Every pointer is to device memory; sizes and flags are passed by value. An
// operation is queued on a stream and returns at once.

#include <stdint.h>

#include "kernels/plugin/mixer_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Opaque: a cudaStream_t.
typedef void* MoestroCudaStream;

/// 0: queued. Above 0: CUDA's number of its error. MOESTRO_CUDA_REFUSED: the plugin has no kernel for these arguments;
/// nothing was queued.
typedef int32_t MoestroCudaResult;
#define MOESTRO_CUDA_REFUSED (-1)

/// Number formats, numbered as moestro::DType.
enum MoestroCudaDType {
  MOESTRO_CUDA_F32 = 0,
  MOESTRO_CUDA_BF16 = 1,
  MOESTRO_CUDA_F16 = 2,
  MOESTRO_CUDA_INT8 = 3,
  MOESTRO_CUDA_INT4 = 4,
  // Rows of blocks with their scales (common/formats/blocks.h).
  MOESTRO_CUDA_Q4_0 = 6,
  MOESTRO_CUDA_Q5_0 = 7,
  MOESTRO_CUDA_Q8_0 = 8,
  MOESTRO_CUDA_Q2_K = 9,
  MOESTRO_CUDA_Q3_K = 10,
  MOESTRO_CUDA_Q4_K = 11,
  MOESTRO_CUDA_Q5_K = 12,
  MOESTRO_CUDA_Q6_K = 13,
  MOESTRO_CUDA_IQ4_NL = 14,
  MOESTRO_CUDA_MXFP4 = 15,
  MOESTRO_CUDA_MIXED = 16,  ///< of experts alone: their matrices differ
  MOESTRO_CUDA_Q4_1 = 17,
  MOESTRO_CUDA_Q5_1 = 18,
  MOESTRO_CUDA_IQ4_XS = 19,
  MOESTRO_CUDA_FP8 = 20,
  MOESTRO_CUDA_FP8_G32 = 21,
  MOESTRO_CUDA_INT4_G128 = 22,
  MOESTRO_CUDA_INT4_G64 = 23,
  MOESTRO_CUDA_INT4_G32 = 24,
  MOESTRO_CUDA_NVFP4 = 25,
};

/// Activations rounded to bf16 have rows of a multiple of this many columns; those behind the last are zeros.
#define MOESTRO_CUDA_ROUNDED_COLUMNS 64

/// y[n, rows] = x[n, cols] * w^T + bias. `parameters`: quantised weights only; `bias` may be null.
struct MoestroCudaMatmul {
  const float* x;
  int64_t n, rows, cols;
  const void* weight;
  const uint16_t* parameters;
  int32_t dtype;
  const float* bias;
  float* y;
  int32_t rounded;  ///< on tensor cores, as MoestroCudaExperts::rounded_tokens; only then are there workspaces:
  uint16_t* rounded_x;    ///< [n, cols rounded up to MOESTRO_CUDA_ROUNDED_COLUMNS], as bf16
  float* partial;         ///< sums over parts of the columns, for products with few blocks
  int64_t partial_bytes;  ///< room at `partial`; the more, the more parts there may be
};

/// Products of `count` matrices of one format with the same x, as MoestroCudaMatmul each.
struct MoestroCudaGroupMatrix {
  const void* weight;
  const uint16_t* parameters;
  int64_t rows;
  const float* bias;
  float* y;
};
#define MOESTRO_CUDA_GROUP_MOST 4
#define MOESTRO_CUDA_GROUP_ROUNDED 16
struct MoestroCudaMatmulGroup {
  const float* x;
  int64_t n, cols;
  int32_t dtype;
  int32_t rounded;  ///< as in MoestroCudaMatmul, for at most MOESTRO_CUDA_GROUP_ROUNDED rows
  int32_t onto;     ///< products are added to what y has
  int32_t count;
  struct MoestroCudaGroupMatrix matrices[MOESTRO_CUDA_GROUP_MOST];
};

struct MoestroCudaGather {
  const void* table;  ///< [rows, cols]; not int8 or int4
  int32_t dtype;
  int64_t cols, count;
  const int32_t* ids;  ///< within the table: the caller has checked
  float* y;
};

/// RMSNorm if `bias` and `centred` are 0; LayerNorm if `centred` is not. At most MOESTRO_CUDA_NORM_MAX wide.
#define MOESTRO_CUDA_NORM_MAX 16384
struct MoestroCudaNorm {
  const float* x;
  int64_t n, dim;
  const float *weight, *bias;
  float eps;
  int32_t centred;
  float* y;  ///< may be x
};

/// sums[t] as in Ops::sum_squares. If `bad_layer` is not null this is the guard: a row whose sum is not finite becomes
/// zeros, and bad_layer[t] becomes `layer` unless it was >= 0 before.
struct MoestroCudaSumSquares {
  float* x;
  int64_t n, dim;
  float* sums;         ///< may be null
  int32_t* bad_layer;  ///< may be null: then x is only read
  int32_t layer;
};

/// What becomes of the residual stream where a block of a layer ends: y = base + weighted rows (as MoestroCudaCombine)
/// + added (as MoestroCudaAddScaled); the guard (as MoestroCudaSumSquares); then its norm (as MoestroCudaNorm) for the
/// next block.
struct MoestroCudaResidual {
  int64_t n, hidden;
  const float* base;
  const float *rows, *weights;  ///< may be null
  int64_t top_k;
  const float *added, *added_logit;  ///< may be null
  float* y;  ///< may be base
  int32_t* bad_layer;  ///< may be null
  int32_t layer;
  const float* norm;
  float eps;
  float* normed;  ///< null: no norm
  const float* norm_bias;
  int32_t centred;
};

struct MoestroCudaRope {
  float* x;
  int64_t n, heads, head_dim, rotary_dim;
  const float *cos, *sin;
};

struct MoestroCudaSiluMul {
  float* gate;
  const float* up;
  int64_t count;
};

struct MoestroCudaExponentials {
  const float* x;
  int64_t count;
  float shift, factor;
  float* y;
};

struct MoestroCudaAddScaled {
  const float *x, *logit;
  int64_t n, dim;
  float* y;
};

struct MoestroCudaClamp {
  float* x;
  int64_t count;
  float limit;
};

/// y[t, i, :] = factor * factors[t, i] * x[t, :]: x [n, dim], y [n, each, dim]. x may be y if each is 1.
struct MoestroCudaScaleRows {
  const float* x;
  int64_t n, each, dim;
  float factor;
  const float* factors;  ///< may be null: all are 1
  float* y;
};

/// y = base + the weighted rows; base may be y.
struct MoestroCudaCombine {
  const float *rows, *weights;
  int64_t n, top_k, hidden;
  const float* base;
  float* y;
};

/// A query of a step and its position.
struct MoestroCudaQuery {
  int32_t row;  ///< of q, k, v and out
  int32_t position;
  int32_t first_block;  ///< of its sequence, in `blocks`
};

/// One layer's KV cache, in the layout of kernels/ops.h (KvView).
struct MoestroCudaKv {
  int64_t heads, kv_heads, head_dim;
  int64_t window, sinks;
  float scale;
  int32_t dtype;
  void* data;
  int64_t block_bytes, scales_offset;
};

struct MoestroCudaKvWrite {
  struct MoestroCudaKv kv;
  const struct MoestroCudaQuery* queries;
  const uint32_t* blocks;
  int64_t count;
  const float *k, *v;
};

/// Heads of q, k and v before attention: an RMSNorm of each head of q and k, their rotation, then MoestroCudaKvWrite. k
/// and v are only read.
struct MoestroCudaPlaceHeads {
  struct MoestroCudaKv kv;
  const struct MoestroCudaQuery* queries;
  const uint32_t* blocks;
  int64_t count;
  float* q;
  const float *k, *v;
  int64_t rotary_dim;
  const float *cos, *sin;
  const float *q_norm, *k_norm;  ///< may be null
  float eps;
  float* sink_q;  ///< not null: q, rotated by these instead
  const float *sink_cos, *sink_sin;
};

/// Up to MOESTRO_CUDA_ATTENTION_PAIRS (on tensor cores: MOESTRO_CUDA_PREFILL_PAIRS) (query, head) pairs of one sequence
/// that read the same KV heads: pairs [first_pair, first_pair + pairs), pair p being head p % group of query
/// first_query + p / group, group = heads / kv_heads.
struct MoestroCudaAttentionUnit {
  int32_t first_query, first_pair, pairs;
};
#define MOESTRO_CUDA_ATTENTION_PAIRS 8
/// On tensor cores; of heads that are wider than MOESTRO_CUDA_PREFILL_NARROW the second.
#define MOESTRO_CUDA_PREFILL_PAIRS 128
#define MOESTRO_CUDA_PREFILL_PAIRS_WIDE 64
#define MOESTRO_CUDA_PREFILL_NARROW 128
/// Positions of a sequence are visited in parts of this many, anchored at position 0.
#define MOESTRO_CUDA_ATTENTION_PART 128
#define MOESTRO_CUDA_HEAD_DIM_MAX 256
/// Floats before a part's values.
#define MOESTRO_CUDA_PARTIAL_HEAD 4
/// The most units whose parts are computed in parallel.
#define MOESTRO_CUDA_PARALLEL_UNITS 512

struct MoestroCudaAttention {
  struct MoestroCudaKv kv;
  const struct MoestroCudaQuery* queries;
  const uint32_t* blocks;
  const struct MoestroCudaAttentionUnit* units;
  int64_t unit_count;
  int32_t pairs_most;  ///< of any unit
  int32_t rounded;     ///< on tensor cores: everything is rounded to bf16 but sums and scores; not with sink_q
  int64_t parts;     ///< the parts of the furthest query's positions, or more; parts that no query sees end at once
  const float *q, *sink_q;
  float* out;
  /// Not null: the parts of a sequence are computed in parallel and merged by a second kernel. Room for (highest row +
  /// 1) * heads * parts * (head_dim + MOESTRO_CUDA_PARTIAL_HEAD) floats; at most MOESTRO_CUDA_PARALLEL_UNITS units.
  /// Null: one after another, with the same bits.
  float* partial;
  const float* sink_logits;  ///< [heads], may be null: AttentionShape::sink_logits
};

/// MoestroCudaRouter::scores, numbered as RouterSpec::Scores.
enum MoestroCudaScores { MOESTRO_CUDA_SOFTMAX = 0, MOESTRO_CUDA_SIGMOID = 1, MOESTRO_CUDA_SPARSE_MIXER = 2 };

struct MoestroCudaRouter {
  const float* logits;
  int64_t n, experts, top_k;
  int32_t scores, normalise;
  float scale;
  const float* bias;
  int64_t groups, groups_kept, group_best;
  int32_t* ids;
  float* weights;
  float jitter;  ///< of MOESTRO_CUDA_SPARSE_MIXER, whose top_k is 2, without bias and groups
};
#define MOESTRO_CUDA_EXPERTS_MAX 1024

/// As moestro::kernels::RoutedRow.
struct MoestroCudaRoutedRow {
  int32_t token, rank;
};

/// Routes by expert: rows of expert e are sorted[offsets[e] .. offsets[e + 1]), in the order of tokens, then ranks;
/// active: the experts that have rows, in ascending order, then -1.
struct MoestroCudaSortRoutes {
  const int32_t* ids;       ///< [n, top_k], within [0, experts)
  const uint8_t* left_out;  ///< [n], may be null: tokens that are not 0 here have no rows
  int64_t n, top_k, experts;
  int32_t* offsets;  ///< [experts + 1]
  int32_t* active;   ///< [min(experts, n * top_k)]
  struct MoestroCudaRoutedRow* sorted;  ///< [n * top_k]
  uint32_t* counts;  ///< workspace [MOESTRO_CUDA_ROUTE_RUNS, experts]; null: one block sorts all
};
#define MOESTRO_CUDA_ROUTE_RUNS 64

/// From the residual stream to a layer's routes: normed = RMSNorm of x; logits = normed * weight^T + bias; the choice;
/// and, for up to MOESTRO_CUDA_ROUTE_ROWS rows, the routes by expert. A row's logits do not depend on n.
struct MoestroCudaRoute {
  const float* x;
  int64_t n, hidden;  ///< hidden: at most MOESTRO_CUDA_ROUTE_WIDTH
  const float* norm;
  float eps;
  float* normed;
  const float *weight, *bias;  ///< bias may be null
  float* logits;
  struct MoestroCudaRouter choice;  ///< of logits
  struct MoestroCudaSortRoutes sort;  ///< of choice.ids; without left_out
  uint32_t* counters;  ///< [MOESTRO_CUDA_ROUTE_ROWS], 0 before and afterwards
};
#define MOESTRO_CUDA_ROUTE_ROWS 64
#define MOESTRO_CUDA_ROUTE_WIDTH 6144

/// Byte offsets of the parts of a tile (common/expert_layout.h).
struct MoestroCudaTile {
  int64_t ffn, gate, up, down, gate_scales, up_scales, down_scales;
};

struct MoestroCudaExpertLayout {
  int64_t hidden, ffn, tile_ffn, tiles, tile_bytes;  ///< tile_bytes: of every tile but the last
  int32_t dtype;  ///< of all matrices, or MOESTRO_CUDA_MIXED
  struct MoestroCudaTile full, last;
  int32_t gate_dtype, up_dtype, down_dtype;
};

/// Tiles of the rows of `sorted` of one expert, as many tokens each as the kernels take; made on the device. Tile i of
/// the list is number i - first of the rows [begin, end) of its run; a run is at most MOESTRO_CUDA_RUN_TILES tiles of
/// one expert, which are adjacent in the list. Entries behind the last tile have blob 0.
struct MoestroCudaTokenTile {
  uint64_t blob;  ///< address of the expert
  int32_t begin, end;
  int32_t first, tiles;
};
/// Tiles have at least this many tokens.
#define MOESTRO_CUDA_TILE_TOKENS_MIN 16
#define MOESTRO_CUDA_RUN_TILES 16

/// What joins an expert's gate and up, as moestro::kernels::GatedUnit.
struct MoestroCudaGatedUnit {
  int32_t clamped;  ///< 0: silu(gate) * up
  float alpha, limit;
};

/// Byte offsets within a blob of the biases of an expert, in f32. All 0: it has none.
struct MoestroCudaExpertBiases {
  int64_t gate, up, down;
};

/// All experts of a layer on their rows, as Ops::expert_ffn. An expert whose slot is 0 is not computed: its rows of
/// `out` are not written.
struct MoestroCudaExperts {
  struct MoestroCudaExpertLayout layout;
  const uint64_t* slots;  ///< expert -> address of its blob, 0: it is not in device memory
  const int32_t* offsets;
  const int32_t* active;
  const struct MoestroCudaRoutedRow* sorted;
  int64_t active_max;  ///< entries of `active`
  int64_t top_k;
  const float* x;
  float* activated;  ///< workspace: [rows of `sorted`, ffn]
  float* out;
  /// 0: in f32. Otherwise at least the tokens of any expert, and products use tensor cores: activations are rounded to
  /// bf16, and so are weights after scaling. Not for weights of f32.
  int64_t rounded_tokens;
  /// Workspaces, if rounded_tokens is not 0.
  int64_t x_rows, rows;          ///< of x, and of `sorted`
  uint16_t* rounded_x;           ///< as bf16: room for x [x_rows, hidden], and for its rows in the order of `sorted`
  uint16_t* rounded_activated;   ///< [rows, ffn], as bf16; in place of `activated`
  struct MoestroCudaTokenTile* token_tiles;  ///< [rows / MOESTRO_CUDA_TILE_TOKENS_MIN + active_max]
  struct MoestroCudaGatedUnit unit;
  struct MoestroCudaExpertBiases biases;
};

/// How a token is drawn: as Sampling (common/sampling.h), with the token's position.
struct MoestroCudaSampling {
  float temperature;  ///< 0: the most probable
  int32_t top_k;      ///< 0: all
  float top_p, min_p;
  uint64_t seed;
  uint32_t choice;
  int32_t position;
};

/// Workspace of each row from which tokens are drawn.
#define MOESTRO_CUDA_SAMPLE_ROW_BYTES 81936

/// ids[t]: the token drawn from row t of logits [n, vocabulary], -1 if a logit is not finite. At most 2^21 tokens.
struct MoestroCudaSample {
  const float* logits;
  int64_t n, vocabulary;
  const struct MoestroCudaSampling* how;  ///< [n]; null: the most probable, the lowest id among equals
  int32_t* ids;
  void* workspace;  ///< [n] of MOESTRO_CUDA_SAMPLE_ROW_BYTES; its contents do not matter
};

struct MoestroCudaOps {
  MoestroCudaResult (*matmul)(const struct MoestroCudaMatmul*, MoestroCudaStream);
  MoestroCudaResult (*matmul_group)(const struct MoestroCudaMatmulGroup*, MoestroCudaStream);
  MoestroCudaResult (*gather)(const struct MoestroCudaGather*, MoestroCudaStream);
  MoestroCudaResult (*norm)(const struct MoestroCudaNorm*, MoestroCudaStream);
  MoestroCudaResult (*sum_squares)(const struct MoestroCudaSumSquares*, MoestroCudaStream);
  MoestroCudaResult (*residual)(const struct MoestroCudaResidual*, MoestroCudaStream);
  MoestroCudaResult (*rope)(const struct MoestroCudaRope*, MoestroCudaStream);
  MoestroCudaResult (*silu_mul)(const struct MoestroCudaSiluMul*, MoestroCudaStream);
  MoestroCudaResult (*exponentials)(const struct MoestroCudaExponentials*, MoestroCudaStream);
  MoestroCudaResult (*add_scaled)(const struct MoestroCudaAddScaled*, MoestroCudaStream);
  MoestroCudaResult (*clamp)(const struct MoestroCudaClamp*, MoestroCudaStream);
  MoestroCudaResult (*combine)(const struct MoestroCudaCombine*, MoestroCudaStream);
  MoestroCudaResult (*kv_write)(const struct MoestroCudaKvWrite*, MoestroCudaStream);
  MoestroCudaResult (*place_heads)(const struct MoestroCudaPlaceHeads*, MoestroCudaStream);
  MoestroCudaResult (*attention)(const struct MoestroCudaAttention*, MoestroCudaStream);
  MoestroCudaResult (*router)(const struct MoestroCudaRouter*, MoestroCudaStream);
  MoestroCudaResult (*sort_routes)(const struct MoestroCudaSortRoutes*, MoestroCudaStream);
  MoestroCudaResult (*route)(const struct MoestroCudaRoute*, MoestroCudaStream);
  MoestroCudaResult (*experts)(const struct MoestroCudaExperts*, MoestroCudaStream);
  MoestroCudaResult (*sample)(const struct MoestroCudaSample*, MoestroCudaStream);
  MoestroCudaResult (*delta)(const struct MoestroCudaDelta*, MoestroCudaStream);
  MoestroCudaResult (*gated_norm)(const struct MoestroCudaGatedNorm*, MoestroCudaStream);
  MoestroCudaResult (*sigmoid_mul)(const struct MoestroCudaSigmoidMul*, MoestroCudaStream);
  MoestroCudaResult (*scale_rows)(const struct MoestroCudaScaleRows*, MoestroCudaStream);
  MoestroCudaResult (*latent_write)(const struct MoestroCudaLatentWrite*, MoestroCudaStream);
  MoestroCudaResult (*latent_attention)(const struct MoestroCudaLatentAttention*, MoestroCudaStream);
};

#ifdef __cplusplus
}
#endif
