#pragma once
// The single-threaded kernels that each instruction set provides. Plain data and pointers only: this header
// is all that the sources under cpu/isa/ share with the rest, so no inline library code is ever compiled with
// their -m flags.
//
// One rule makes every result independent of batch, chunking and threads: a dot product is the sum, over
// column blocks of kColumnBlock in order, of a block's value; a block's value is one vector accumulator fed
// with the block's columns in order and reduced by one fixed tree. Every register blocking and every cache
// blocking keeps to it.

#include <cstddef>
#include <cstdint>

namespace moestro::kernels::cpu {

inline constexpr int64_t kColumnBlock = 1024;
inline constexpr int64_t kPanelRows = 64;
inline constexpr int64_t kPanelFloats =
    kColumnBlock * kPanelRows + 2 * kPanelRows * 64;  ///< scratch of one thread: a block of weights, turned or widened, and parameters
inline constexpr int64_t kAttentionRowsMax = 64;  ///< (query, head) pairs of one attention task

/// y[t][y_offset + r] = dot(x[t] + x_offset, row r of w) + bias[r] for all tokens t and rows r; adds to y if
/// `accumulate`.
struct GemmTask {
  const float* const* x = nullptr;  ///< n rows of activations
  int64_t x_offset = 0;
  int64_t n = 0;
  const void* w = nullptr;
  int64_t w_stride = 0;              ///< elements from row to row; int4: bytes
  const uint16_t* scales = nullptr;  ///< bf16; int8: one per 64 columns; int4: scale and offset
  int64_t scale_stride = 0;          ///< numbers from row to row
  int64_t rows = 0, cols = 0;
  const void* next_w =
      nullptr;  ///< rows of the same width that this thread reads next, to prefetch; may be null
  const float* bias = nullptr;  ///< of row 0; may be null
  float* const* y = nullptr;
  int64_t y_offset = 0;
  bool accumulate = false;
  float* panel = nullptr;  ///< kPanelFloats
};

/// Weights along the reduction dimension, in runs of columns: a dense matrix and an expert's gate are one run, its down is one for
/// each tile. Every run but the last is a multiple of 64 columns wide.
struct WeightRun {
  const std::byte* w = nullptr;  ///< row 0
  int64_t row_bytes = 0;         ///< from row to row
  const uint16_t* parameters = nullptr;  ///< of row 0; quantised weights only
  int64_t row_parameters = 0;            ///< numbers from row to row
  int64_t cols = 0;
};

/// y[t][y_offset + r] = dot(x[t], row first_row + r of the weights) + bias[r], for all tokens t and r in [0, rows).
struct ProductTask {
  const std::byte* const* x = nullptr;  ///< n rows of activations: f32, or as RowFormat says
  int64_t n = 0;
  const WeightRun* runs = nullptr;
  int64_t run_count = 0;
  int64_t first_row = 0, rows = 0;
  const std::byte* next_w = nullptr;  ///< what this thread reads next, to prefetch; may be null
  const float* bias = nullptr;        ///< of the task's first row; may be null
  float* const* y = nullptr;
  int64_t y_offset = 0;
  float* panel = nullptr;  ///< kPanelFloats
};
using ProductFn = void (*)(const ProductTask&);

/// Activations rounded for the instructions that multiply narrow numbers. A row begins on 64 bytes.
///   bf16: the columns as bf16 (nearest, ties to even), zeros up to a multiple of 32.
///   int8, int4: groups of 64 columns, G = ceil(cols / 64), q = nearest(x / scale), scale = max |x| / 127:
///         q [G][64] (zeros past the end) | scale f32 [G] | -128 * sum of q, int32 [G] | scale * sum of q, f32 [G].
///         int4: the columns of a group in the order 0..15, 32..47, 16..31, 48..63, in which its weights unpack.
///         A group with a NaN or infinity has a scale that is one.
struct RoundedInt8Row {
  int64_t groups;
  explicit constexpr RoundedInt8Row(int64_t cols) : groups((cols + 63) / 64) {}
  constexpr int64_t scales() const { return groups * 64; }
  constexpr int64_t minus_sums() const { return groups * 68; }
  constexpr int64_t scaled_sums() const { return groups * 72; }
  constexpr int64_t bytes() const { return (groups * 76 + 63) / 64 * 64; }
};
constexpr int64_t rounded_bf16_row_bytes(int64_t cols) { return (cols + 31) / 32 * 64; }

/// The fast product of a precision of weights: with activations rounded to what its instruction takes. A token's result depends on how
/// many tokens share the call (two orders of summation).
struct RoundedProduct {
  int64_t (*row_bytes)(int64_t cols) = nullptr;
  void (*round)(const float* x, int64_t cols, std::byte* row) = nullptr;
  ProductFn product = nullptr;  ///< null: there is none, use the exact one
};

/// K or V of one KV head in the paged cache.
struct KvPart {
  const char* values = nullptr;  ///< in block 0
  const char* scales = nullptr;  ///< likewise: one f32 for each token; int8 only
  int64_t block_bytes = 0;       ///< from block to block
};

/// Queries of one sequence against one KV head: queries * heads <= kAttentionRowsMax. Query i is at
/// first_position + i. AttentionShape in kernels/ops.h says what it sees.
struct AttentionTask {
  const float* q = nullptr;       ///< of the first query, at `first_head`
  const float* sink_q = nullptr;  ///< likewise; read for queries with a gap
  float* out = nullptr;           ///< likewise
  int64_t token_stride = 0;       ///< floats from query to query, in q and out
  int64_t queries = 0, heads = 0, head_dim = 0;
  int64_t first_position = 0, window = 0, sinks = 0;
  float scale = 0.0f;
  KvPart keys, values;
  const uint32_t* blocks = nullptr;
  float* scores = nullptr;  ///< attention_scratch_floats()
  float* panel = nullptr;   ///< kPanelFloats
};

/// Floats of one row of `scores`: the positions from the first query's window to the last query, in whole
/// blocks, behind room for the sinks of the row.
constexpr int64_t attention_row_floats(int64_t window_begin, int64_t last_position, int64_t sinks) {
  return (sinks + 15) / 16 * 16 + (last_position / 16 - window_begin / 16 + 1) * 16;
}

struct KernelTable {
  ProductFn product[5];       ///< by DType of the weights; x is f32
  const RoundedProduct* rounded;  ///< likewise, 5 of them; null: the instruction set multiplies no narrow numbers
  void (*attention[4])(const AttentionTask&);  ///< by DType of the cache
  void (*to_f32[3])(const void* from, int64_t count, float* to);  ///< by DType; not quantised
  void (*to_bf16)(const float* from, int64_t count, uint16_t* to);
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
  void (*add_scaled)(const float* x, const float* logit, int64_t dim, float* y);  ///< one token
  void (*combine)(const float* rows, const float* weights, int64_t top_k, int64_t hidden,
                  float* y);  ///< one token
  void (*clamp)(float* x, int64_t count, float limit);
};

extern const KernelTable kGenericKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;
#endif

}  // namespace moestro::kernels::cpu
