#pragma once
// The CPU backend: cuts each operation into chunks of outputs for the thread pool and calls the kernels of the chosen
// instruction set. Without OpsOptions::deterministic, products may round activations (RoundedProduct in
// kernel_table.h), and for few rows an expert's down product is summed tile by tile. In both modes the result does not
// depend on the number of threads.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/machine/numa_pages.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace moestro::kernels::cpu {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(OpsOptions resolved);

  const OpsOptions& options() const override { return options_; }
  void set_weight_nodes(const machine::NodeMap& nodes) override { weight_nodes_ = nodes; }
  PlacedParts placed_parts() const override { return {pool_.chunks_on_their_node(), pool_.chunks_elsewhere()}; }
  bool supports(DType weight) const override;
  void matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y,
              Activations activations) override;
  void gather_rows(const Weight& table, std::span<const int32_t> ids, float* y) override;
  void rms_norm(const float* x, int64_t n, int64_t dim, const float* weight, float eps, float* y) override;
  void layer_norm(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias, float eps,
                  float* y) override;
  void sum_squares(const float* x, int64_t n, int64_t dim, float* sums) override;
  void rope(float* x, int64_t n, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
            const float* sin) override;
  void kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* k,
                const float* v, const KvView& cache) override;
  void attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                 const float* sink_q, const KvView& cache, float* out) override;
  bool supports_latent() const override { return true; }
  void latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* kv,
                    const float* norm, float eps, const float* cos, const float* sin, const KvView& cache) override;
  void latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                        const float* cos, const float* sin, const Weight& kv_b, const KvView& cache,
                        float* out) override;
  bool supports_delta() const override { return true; }
  void gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences, const DeltaInput& in,
                   float* states, float* out) override;
  void sigmoid_mul(float* x, const float* gate, int64_t count) override;
  void router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids,
                    float* weights) override;
  void expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                  std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& unit) override;
  void combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden,
               float* y) override;
  void silu_mul(float* gate, const float* up, int64_t count) override;
  void relu(float* x, int64_t count) override;
  bool supports_encoders() const override { return true; }
  void exponentials(const float* x, int64_t count, float shift, float factor, float* y) override;
  void add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) override;
  void scale(float* x, int64_t count, float factor) override;
  void clamp(float* x, int64_t count, float limit) override;

 private:
  /// Memory of one thread of the pool. The caller sizes it for all threads before a loop, because any of them may take
  /// part.
  struct alignas(64) ThreadScratch {
    Scratch<float> panel, scores, up;
    Scratch<float*> up_rows;
    Scratch<uint16_t> widened;
    Scratch<float> widened_blocks;
    Scratch<WeightRun> listed_runs;
    Scratch<WeightException> exceptions;
  };
  /// A range of queries of one sequence and of heads of one KV head.
  struct AttentionUnit {
    const AttentionSequence* sequence;
    int32_t first_query, queries;
    int32_t first_head, heads;
  };
  struct ExpertWork;

  ThreadScratch& scratch(int thread) { return thread_scratch_[static_cast<size_t>(thread)]; }
  float* panel(int thread) {
    return thread_scratch_[static_cast<size_t>(thread)].panel.at_least(kPanelFloats);
  }
  /// How weights of a precision are multiplied, and the form of the activations.
  struct Product {
    ProductByTokens run;
    const RoundedProduct* rounding;  ///< null: f32
    bool in_12_bits;  ///< weights are bf16 in 12 bits, and multiplied as bf16
    DType blocks = DType::kF32;  ///< if is_blocks(): the format of the weights
    /// Blocks that `run` does not read itself are widened to f32, for more than its few tokens.
    bool widens_blocks() const { return is_blocks(blocks) && rounding == nullptr; }
  };
  /// Of so many tokens.
  Product product(DType weights, Activations activations, int64_t tokens) const;
  /// Makes room for them in each thread's scratch, for products of this many runs.
  void make_room_to_widen(const Product& product, const WeightRun* runs, int64_t run_count);
  void multiply(const Product& product, const ProductTask& task, int thread);
  /// Whether there are kernels for bf16 in 12 bits. If not, it is widened to memory first.
  bool lists_exceptions(const Product& product) const;
  void multiply_in_12_bits(const ProductTask& task, int thread);
  void multiply_widened(const Product& product, const ProductTask& task, int thread);
  void multiply_blocks(const Product& product, const ProductTask& task, int thread);
  /// A column block of some rows at a time is widened to `widened`, in the core's own cache, and goes through the exact
  /// product. widen(run, cut of its matrix, to, numbers from row to row).
  template <class Number, class Widen>
  void multiply_in_blocks(const Product& product, const ProductTask& task, Number* widened, const Widen& widen);
  auto dequantise(DType blocks) const { return kernels_.dequantise[block_index(blocks)]; }
  struct RoundedScratch {
    Scratch<std::byte> blocks, groups;
    Scratch<float> spans;
    RoundedRows rows;
  };
  /// n rows of `cols` activations, rounded for weights in runs of `run_cols`; they stay until the next call with `to`.
  const RoundedRows* round_rows(const RoundedProduct& rounding, const float* const* x, int64_t n, int64_t cols,
                                int64_t run_cols, RoundedScratch& to);
  /// Runs body(first, end, thread) over ranges of [0, count) whose bounds are multiples of `grain`. Runs inline if
  /// `work` (floats touched, or multiply-adds) is too little to wake a thread.
  template <class Body>
  void over_ranges(int64_t count, int64_t grain, int64_t work, const Body& body);

  /// Fills attention_units_ and returns the number of score floats that the largest of them needs.
  int64_t cut_attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences);
  float mix_sparsely(const float* logits, const RouterSpec& spec, int32_t taken, float* near, int32_t* id) const;
  void route(const float* logits, const RouterSpec& spec, float* scratch, int32_t* ids, float* weights) const;
  void attend(const AttentionShape& shape, const AttentionUnit& unit, const float* q, const float* sink_q,
              const KvView& cache, float* out, int thread);
  /// Some channels of q, k or v; `channel` is the first of them among those of all three.
  struct DeltaChannels {
    float* x;
    int64_t stride, channel, count;
  };
  void delta_convolve(const DeltaShape& shape, const AttentionSequence& s, const DeltaInput& in,
                      const DeltaChannels& of, float* states, int thread);
  void delta_recur(const DeltaShape& shape, const AttentionSequence& s, const DeltaInput& in, int64_t head,
                   int64_t column, float* states, float* out, int thread);
  /// Runs body(unit, thread) for all units; inline if `work` is too little to wake a thread.
  template <class Body>
  void run_units(int64_t units, int64_t work, const Body& body);
  struct LatentCall;
  /// Queries of one sequence, all heads, whose (query, head) pairs are computed from number `at` on.
  struct LatentPiece {
    const AttentionSequence* sequence;
    int64_t first_query, queries, at;
  };
  /// Some queries and heads of a piece, and one span of the positions that they see.
  struct LatentUnit {
    const LatentPiece* piece;
    int64_t first_query, queries, first_head, heads, span;
  };
  void latent_absorbed(const LatentCall& call, int64_t pairs);
  void latent_spans(const LatentCall& call, int64_t pairs);
  void latent_span(const LatentCall& call, const LatentUnit& unit, int64_t slot, int thread);
  void add_latent_parts(const LatentCall& call);
  void latent_expanded(const LatentCall& call, const LatentPiece& piece);
  void latent_expanded_head(const LatentCall& call, const LatentPiece& piece, int64_t from, int64_t unit, int thread);
  /// Whether queries and weights are rounded to the cache's precision.
  bool rounds_latents(DType cache) const;
  void run_latent(LatentTask& task, DType dtype, int thread);
  void rotate_queries(const LatentCall& call, const LatentPiece& piece, float* to);
  /// Runs body(head, queries, thread) for all heads, with at most kLatentRowsMax queries of the pieces at a time.
  template <class Body>
  void over_latent_heads(const LatentCall& call, int64_t pairs, const Body& body);
  void join(const GatedUnit& unit, float* gate, const float* up, int64_t count) const;
  void expert_up(const ExpertWork& work, int64_t unit, int thread);
  void expert_down(const ExpertWork& work, int64_t unit, int thread);
  void expert_down_by_tile(const ExpertWork& work);

  OpsOptions options_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  machine::NodeMap weight_nodes_;
  std::vector<ThreadScratch> thread_scratch_;
  Scratch<const float*> x_rows_;
  Scratch<float*> y_rows_, a_rows_;
  Scratch<float> activations_;
  RoundedScratch rounded_x_, rounded_up_, rounded_a_;
  std::vector<RoundedScratch> rounded_tiles_;
  Scratch<float> tile_parts_;
  Scratch<float*> tile_rows_;
  Scratch<const float*> tile_a_rows_;
  Scratch<WeightRun> gate_runs_, up_runs_, down_runs_;
  std::vector<AttentionUnit> attention_units_;
  std::vector<LatentPiece> latent_pieces_;
  std::vector<LatentUnit> latent_units_;
  std::vector<std::pair<int64_t, int64_t>> latent_queries_, latent_chains_;
  /// Of pairs: the query for the latents, the rotated part, and the softmax so far.
  Scratch<float> latent_q_, latent_rope_, latent_out_, latent_top_, latent_sum_;
  /// Of spans that are not added to it yet.
  Scratch<float> latent_part_out_, latent_part_top_, latent_part_sum_;
  Scratch<float> latent_rows_, expanded_rows_;  ///< a span as f32, and its keys and values
  Scratch<uint16_t> narrow_rows_;               ///< the latter as bf16
  Scratch<float> delta_decay_, delta_rate_;     ///< by row and head
};

/// Less work than this runs on the calling thread, because dispatching it costs more than it saves.
inline constexpr int64_t kInlineWork = 128 * 1024;

template <class Body>
void CpuOps::run_units(int64_t units, int64_t work, const Body& body) {
  if (work >= kInlineWork) return pool_.run(units, body);
  for (int64_t i = 0; i < units; ++i) body(i, 0);
}

template <class Body>
void CpuOps::over_ranges(int64_t count, int64_t grain, int64_t work, const Body& body) {
  if (count <= 0) return;
  if (work < kInlineWork || pool_.threads() == 1) return body(int64_t{0}, count, 0);
  const int64_t grains = ceil_div(count, grain);
  const int64_t per_chunk = ceil_div(grains, int64_t{4} * pool_.threads()) * grain;
  pool_.run(ceil_div(count, per_chunk), [&](int64_t i, int thread) {
    body(i * per_chunk, std::min(count, (i + 1) * per_chunk), thread);
  });
}

}  // namespace moestro::kernels::cpu
