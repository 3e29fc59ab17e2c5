#pragma once
// The single-threaded kernels that each instruction set provides. It has only plain data and pointers. The sources
// under cpu/isa/ include nothing else of the rest, so no inline library code is ever compiled with their -m flags.
//
// One rule makes every result independent of batch, chunking and threads: a dot product is the sum, over column blocks
// of kColumnBlock in order, of a block's value; a block's value is one vector accumulator fed with the block's columns
// in order and reduced by one fixed tree. All register and cache blocking follows this rule. Blocks are cut where rows
// begin, whatever runs the columns lie in.

#include <cstddef>
#include <cstdint>

namespace moestro::kernels::cpu {

inline constexpr int64_t kColumnBlock = 1024;
inline constexpr int64_t kPanelRows = 64;
inline constexpr int64_t kPanelFloats =
    kColumnBlock * kPanelRows +
    2 * kPanelRows * 64;  ///< scratch of one thread: a block of weights, transposed or widened, and parameters
inline constexpr int64_t kAttentionRowsMax = 64;  ///< (query, head) pairs of one attention task

inline constexpr int64_t kBlockKernels = 20;  ///< formats of blocks (common/dtype.h)
inline constexpr int64_t kBlockIn12Columns = 64, kBlockIn12Bytes = 96;  ///< of bf16 in 12 bits

/// Some blocks of each of some rows of bf16 in 12 bits (common/bf16_in_12.h).
struct BlocksIn12 {
  const std::byte* first;
  int64_t row_bytes;  ///< from row to row
  int64_t rows, blocks;
};

/// A number of bf16 in 12 bits whose exponent has no code.
struct WeightException {
  int64_t row = 0, col = 0;
  uint16_t exponent = 0;  ///< where bf16 has it
};

/// Weights along the reduction dimension, in runs of columns: a dense matrix and an expert's gate are one run, its down
/// is one for each tile. Every run but the last is a multiple of 64 columns wide.
struct WeightRun {
  const std::byte* w = nullptr;  ///< row 0
  int64_t row_bytes = 0;         ///< from row to row
  const uint16_t* parameters = nullptr;  ///< of row 0; bf16 in 12 bits: the matrix' exponents
  int64_t row_parameters = 0;            ///< numbers from row to row
  int64_t cols = 0;
  int64_t matrix_rows = 0;  ///< bf16 in 12 bits only: the stored parameters depend on it
  const WeightException* exceptions =
      nullptr;  ///< of product_in_12_bits only: those of the task's rows, ascending, and one of row INT64_MAX
  int64_t exception_count = 0;                  ///< without the last one
};

/// n rows of activations, rounded for the instructions that multiply narrow numbers, in blocks of 64 bytes: 32 columns
/// as bf16 (nearest, ties to even), or a group of 64 columns as bytes q = nearest(x / scale), scale = max |x| / 127.
/// Columns past the last one are zero. Blocks of adjacent tokens are adjacent, so a kernel reaches all of them from one
/// pointer.
///   blocks   [block][token][64]. int4: the columns of a group are in the order in which its weights unpack: 0..15,
///            32..47, 16..31, 48..63
///   spans    blocks of weights (RoundedProduct::spans) only: a span is 256 columns of a run, padded with zeros. Of its
///            four blocks, bytes 16 p .. 16 p + 15 have columns 64 p .. 64 p + 63, in the order in which the format's
///            kernels unpack its weights. [span][token]: f32 [16], for each 4 bytes of a block their scale, times a
///            power of two that the kernels choose | [16], what they make of the sums of q (else: round_in_order)
///   groups   otherwise, bytes only, [token]: scale f32 [G] | -128 * sum of q, int32 [G] | scale * sum of q, f32 [G];
///            G = ceil(cols / 64)
/// If a group contains NaN or infinity, its scale does too.
struct RoundedRows {
  static constexpr int64_t kBlockBytes = 64;
  static constexpr int64_t kSpareBytes =
      16 * kBlockBytes;  ///< after the last block: kernels read more tokens than there are
  std::byte* blocks = nullptr;
  std::byte* groups = nullptr;
  static constexpr int64_t kSpanColumns = 256, kSpanNumbers = 32;
  float* spans = nullptr;
  int64_t run_cols = 0;  ///< columns of every run of the weights but the last, which may have fewer
  int64_t tokens = 0, group_count = 0;

  int64_t block_stride() const { return tokens * kBlockBytes; }
  std::byte* block(int64_t index, int64_t token) const { return blocks + (index * tokens + token) * kBlockBytes; }
  float* scales(int64_t token) const { return reinterpret_cast<float*>(groups) + token * group_count * 3; }
  float* span(int64_t index, int64_t token) const { return spans + (index * tokens + token) * kSpanNumbers; }
  int32_t* minus_sums(int64_t token) const { return reinterpret_cast<int32_t*>(scales(token) + group_count); }
  float* scaled_sums(int64_t token) const { return scales(token) + group_count * 2; }
};

/// y[t][y_offset + r] = dot(x[t] + x_offset, row first_row + r of the weights) + bias[r], for all tokens t and r in
/// [0, rows); adds to y if `accumulate`. Only exact products have an offset, or add to y.
struct ProductTask {
  const float* const* x = nullptr;      ///< n rows of activations
  int64_t x_offset = 0;
  const RoundedRows* rounded = nullptr; ///< the same, for a RoundedProduct
  int64_t n = 0;
  const WeightRun* runs = nullptr;
  int64_t run_count = 0;
  int64_t first_row = 0, rows = 0;
  const std::byte* next_w = nullptr;  ///< what this thread reads next, to prefetch; may be null
  const float* bias = nullptr;        ///< of the task's first row; may be null
  float* const* y = nullptr;
  int64_t y_offset = 0;
  bool accumulate = false;
  float* panel = nullptr;  ///< kPanelFloats
};
using ProductFn = void (*)(const ProductTask&);

/// The kernels of a product for few and for many tokens; null: there is none.
struct ProductByTokens {
  int64_t few_tokens = 0;  ///< the most tokens of `few`
  ProductFn few = nullptr, many = nullptr;
  ProductFn of(int64_t tokens) const { return tokens <= few_tokens ? few : many; }
};

/// The fast product for a precision of weights, with activations rounded to the input type of its instruction (FP8
/// without Fp8Products: not rounded, and of few tokens only). A token's result depends on how many tokens share the
/// call (one, few or many: three orders of summation, and perhaps so many that nothing is rounded).
struct RoundedProduct {
  static constexpr int64_t kNever = INT64_MAX;
  int64_t block_columns = 0;
  /// Fills a token's part of `to`. Null: activations stay f32.
  void (*round)(const float* x, int64_t cols, int64_t token, const RoundedRows& to) = nullptr;
  ProductByTokens product;  ///< none: use the exact one
  bool spans = false;       ///< the rounded rows are in spans
  int64_t blocks = 1;       ///< of a rounded row, that block_columns become
  /// So many tokens and more are multiplied exactly, which is faster where arithmetic is the limit (bf16_pairs_pay()).
  int64_t exact_from = kNever;
};

/// K or V of one KV head in the paged cache.
struct KvPart {
  const char* values = nullptr;  ///< in block 0
  const char* scales = nullptr;  ///< likewise: one f32 for each token; int8 only
  int64_t block_bytes = 0;       ///< from block to block
};

/// Queries of one sequence against one KV head: queries * heads <= kAttentionRowsMax. Query i is at first_position + i.
/// AttentionShape in kernels/ops.h says which positions it sees.
struct AttentionTask {
  const float* q = nullptr;       ///< of the first query, at `first_head`
  const float* sink_q = nullptr;  ///< likewise; read for queries with a gap
  float* out = nullptr;           ///< likewise
  int64_t token_stride = 0;       ///< floats from query to query, in q and out
  int64_t queries = 0, heads = 0, head_dim = 0;
  int64_t first_position = 0, window = 0, sinks = 0;
  float scale = 0.0f;
  const float* sink_logits = nullptr;  ///< of `heads` heads; may be null
  const float* position_bias = nullptr;  ///< of `heads` heads, 2 * bias_reach + 1 numbers each; may be null
  int64_t bias_reach = 0;
  int64_t seen_first = 0, seen_end = 0;  ///< of AttentionSequence
  KvPart keys, values;
  const uint32_t* blocks = nullptr;
  float* scores = nullptr;  ///< attention_scratch_floats()
  float* panel = nullptr;   ///< kPanelFloats
};

/// Floats of one row of `scores`: the positions from the first query's window to the last query, in whole blocks, after
/// room for the sinks of the row.
constexpr int64_t attention_row_floats(int64_t window_begin, int64_t last_position, int64_t sinks) {
  return (sinks + 15) / 16 * 16 + (last_position / 16 - window_begin / 16 + 1) * 16;
}

/// Positions of latent attention that are computed as one: their latents stay in the core's own cache between scores
/// and values. Every query's sums are of whole spans from position 0 on, whoever computes them.
inline constexpr int64_t kLatentSpan = 256;
inline constexpr int64_t kLatentRowsMax = 128;  ///< (query, head) pairs of one task

/// One span of one sequence: keys are in two parts, of which the second is rotated. out[r] = sum of exp(score - top[r])
/// * value, sum[r] = that of the weights; not normalised yet.
struct LatentTask {
  int64_t rows = 0;
  const float* const* q = nullptr;       ///< [rows]: key_dim numbers each
  const float* const* q_rope = nullptr;  ///< [rows]: rope_dim numbers each
  /// [rows], ascending: positions of the span that the row sees. 0: its out, top and sum are not written.
  const int64_t* seen = nullptr;
  int64_t key_dim = 0, rope_dim = 0, value_dim = 0;
  int64_t key_stride = 0, rope_stride = 0, value_stride = 0;  ///< numbers from position to position within a block
  KvPart keys, rope_keys, values;
  const uint32_t* blocks = nullptr;  ///< of the span's positions
  float scale = 0.0f;
  float* scores = nullptr;  ///< [rows][kLatentSpan]
  float* more = nullptr;    ///< int8: [rows][16]
  uint16_t* rounded = nullptr;  ///< latent_rounded: [rows][latent_rounded_numbers()]
  float* const* out = nullptr;
  float *top = nullptr, *sum = nullptr;
  float* panel = nullptr;  ///< kPanelFloats
};

/// A rounded query, then its rounded weights.
constexpr int64_t latent_rounded_numbers(int64_t key_dim, int64_t rope_dim) {
  const int64_t query = (key_dim + 31) / 32 * 32 + (rope_dim + 31) / 32 * 32;
  return query > kLatentSpan ? query : kLatentSpan;
}

/// y[t] = sum over `rows` rows r of the weights, in order, of x[t][r] * w[r], for n rows t.
struct RowSumTask {
  const float* const* x = nullptr;
  int64_t n = 0;
  const void* w = nullptr;  ///< [rows][cols]
  int64_t rows = 0, cols = 0;
  float* const* y = nullptr;
};

/// Columns of a head's state of the gated delta rule that are computed as one: their part of the state stays in the
/// core's first cache from position to position.
inline constexpr int64_t kDeltaColumns = 32;
inline constexpr int kDeltaChains = 2;

/// The convolution of some channels of one sequence, and SiLU, in place.
struct DeltaConvTask {
  float* x = nullptr;
  int64_t stride = 0;  ///< floats from position to position
  int64_t tokens = 0, channels = 0, conv = 0;
  const float* weights = nullptr;  ///< [conv][channels]
  const float* tail = nullptr;     ///< [conv - 1][channels]: inputs of the positions before
};

/// Some columns of one head's state, position by position (DeltaShape in kernels/ops.h).
struct DeltaTask {
  float* state = nullptr;  ///< [key_dim][kDeltaColumns]; columns beyond `width` are zeros
  int64_t tokens = 0, key_dim = 0, width = 0;
  const float *q = nullptr, *k = nullptr;  ///< of the head, normed
  int64_t key_stride = 0;                  ///< floats from position to position
  const float* v = nullptr;                ///< of the columns
  float* out = nullptr;                    ///< likewise
  int64_t value_stride = 0;
  const float *decay = nullptr, *rate = nullptr;  ///< of the head
  int64_t gate_stride = 0;
};

/// A row's softmax so far, or of a part: values are weighted by exp(score - top).
struct SoftmaxPart {
  float* out = nullptr;
  float *top = nullptr, *sum = nullptr;
};

struct KernelTable {
  ProductFn product[5];       ///< by DType of the weights, as computed_as() has it; x is f32
  void (*to_bf16)(const float* from, int64_t count, uint16_t* to);
  void (*attention[4])(const AttentionTask&);  ///< by DType of the cache
  void (*to_f32[3])(const void* from, int64_t count, float* to);  ///< by DType; not quantised
  /// Without exceptions, to rows of `stride` numbers.
  void (*widen_bf16)(const BlocksIn12& from, const uint8_t* of_code, uint16_t* to, int64_t stride);
  void (*dequantise[kBlockKernels])(const std::byte* blocks, int64_t count,
                                    float* to);  ///< by block_index(); bitwise common/formats/blocks.h
  void (*to_f16)(const float* from, int64_t count, uint16_t* to);
  float (*to_int8)(const float* from, int64_t count,
                   int8_t* to);  ///< returns the scale; see KvView in kernels/ops.h
  void (*rms_norm)(const float* x, int64_t n, int64_t dim, const float* weight, float eps, float* y);
  void (*layer_norm)(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias,
                     float eps, float* y);  ///< bias may be null
  float (*sum_squares)(const float* x, int64_t dim);
  void (*rope)(float* x, int64_t heads, int64_t head_dim, int64_t half, const float* cos,
               const float* sin);                          ///< one token
  float (*softmax)(float* x, int64_t count, float scale);  ///< x = exp(scale * (x - max)); returns the sum
  float (*sigmoid)(float* x, int64_t count);               ///< in place; returns the sum
  void (*silu_mul)(float* gate, const float* up, int64_t count);
  void (*clamped_swiglu)(float* gate, const float* up, int64_t count, float alpha, float limit);
  void (*relu)(float* x, int64_t count);
  void (*exponentials)(const float* x, int64_t count, float shift, float factor, float* y);
  void (*add_scaled)(const float* x, const float* logit, int64_t dim, float* y);  ///< one token
  void (*combine)(const float* rows, const float* weights, int64_t top_k, int64_t hidden,
                  float* y);  ///< one token
  void (*clamp)(float* x, int64_t count, float limit);
  void (*latent[4])(const LatentTask&);      ///< by DType of the cache
  void (*row_sums[3])(const RowSumTask&);    ///< by DType; not quantised
  void (*add_part)(const SoftmaxPart& to, const SoftmaxPart& part, int64_t dim);
  void (*scale_by)(float* x, int64_t count, float factor);
  void (*delta_conv)(const DeltaConvTask&);
  void (*delta_scan)(const DeltaTask&);
  void (*sigmoid_mul)(float* x, const float* gate, int64_t count);

  // Not in the base of an instruction set; filled by parts (kernels/cpu/isa.cc).
  RoundedProduct rounded[5] = {};  ///< by DType as `product`
  RoundedProduct rounded_blocks[kBlockKernels] = {};  ///< by block_index(); of some formats there are none
  /// Products with bf16 in 12 bits, activations rounded as for bf16. Results are bitwise those of bf16.
  ProductByTokens product_in_12_bits = {};
  /// Of a cache of bf16, with queries and weights rounded to bf16; null: there is none.
  void (*latent_rounded)(const LatentTask&) = nullptr;
};

/// Parts: kernels for an instruction that a base does not use. Each is compiled with its own flags.
struct ByteProducts {
  RoundedProduct int8, int4;
  RoundedProduct blocks[kBlockKernels] = {};  ///< as KernelTable::rounded_blocks
};
struct Bf16Products {
  RoundedProduct bf16;
  ProductByTokens in_12_bits;
  void (*to_bf16)(const float* from, int64_t count, uint16_t* to);
  void (*latent)(const LatentTask&);
};
/// With activations rounded to bf16.
struct Fp8Products {
  RoundedProduct fp8, fp8_g32;
};
/// Of many tokens.
struct TileProducts {
  ProductFn bf16, bf16_in_12_bits, int8, int4;
};

extern const KernelTable kGenericKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const ByteProducts kAvx2ByteProducts;
extern const ByteProducts kAvx2VnniProducts;
extern const ByteProducts kAvx512VnniProducts;
extern const Bf16Products kAvx512Bf16Products;
extern const Fp8Products kAvx512Fp8Products;
extern const TileProducts kAmxProducts;
/// Multiplies two pairs of tiles and compares every number. Called before tiles are used.
bool amx_multiplies_rightly();
#endif

}  // namespace moestro::kernels::cpu
