#pragma once
// The computation of a layer on the rows of a step, without its experts, for any backend, in that backend's memory.

#include <cstdint>
#include <optional>
#include <vector>

#include "services/worker/engine/cross_attention.h"
#include "services/worker/engine/position_tables.h"
#include "services/worker/engine/sequence_mixer.h"

namespace moestro::engine {

/// What the kernels of an expert need to know beside its layout.
kernels::GatedUnit gated_unit(const model::ExpertSpec& expert);

/// The model's norm of n rows of the residual stream; bias: null where it has none.
void norm_rows(kernels::Ops& ops, const model::ModelSpec& spec, const float* x, int64_t n, const float* weight,
               const float* bias, float* y);

class LayerMath {
 public:
  using Parts = MathParts;
  LayerMath(const Parts& parts, int64_t step_tokens_max);
  /// Whether all buffers could be allocated.
  Status status() const;

  /// Begins a step; `batch` must live until it has ended.
  void begin(const StepBatch& batch);

  // x: the residual stream, [rows, hidden].

  void embed(float* x);
  /// x += attention(norm(x)) for the rows of a micro-batch, and then the same over the encoder's memory, if the layer
  /// has such. Their rows of h() are then the input of the layer's experts or MLP, unless router() makes it. (Of
  /// experts before attention: the normed x as it was.)
  /// is_normed: h() already is norm(x).
  void attention(size_t layer, const MicroBatch& of, float* x, bool is_normed = false) {
    attention(layer, of, sequences_of(of), x, is_normed);
  }
  /// The same with other block tables: `sequences` are those of the micro-batch, in their order.
  void attention(size_t layer, const MicroBatch& of, std::span<const kernels::AttentionSequence> sequences, float* x,
                 bool is_normed = false);
  // The same in parts, where the host attends (host_attention.h):

  AttentionRows attention_rows(size_t layer) { return mixers_.of_layer(layer).rows_of(layer); }
  void begin_attention(size_t layer, const MicroBatch& of, const float* x);
  void finish_attention(size_t layer, const MicroBatch& of, float* x);

  /// Computes again from the stream after attention() what shared_expert() and, unless its experts are before
  /// attention, the rest of the layer reads: h(). Experts before attention see what is not there any more.
  void norm_after_attention(size_t layer, const float* x);
  const float* h() const { return h_; }
  float* h() { return h_; }
  /// Whether router() makes h() of the stream itself, as Ops::norm_route.
  bool router_norms(size_t layer) const;
  /// The choices of a sparse layer for these rows: [rows.count, top_k].
  void router(size_t layer, TokenRange rows, const float* x, int32_t* ids, float* weights);
  void dense_mlp(size_t layer, TokenRange rows, float* x);
  void dense_mlp(size_t layer, float* x) { dense_mlp(layer, all_rows(), x); }
  /// Ends the pass of a step that encodes: writes the memory of its sequences.
  void write_memory(const float* x) { cross_->write_memory(x); }
  /// Computed from h() or, with a norm of its own, from the stream after attention(), and kept until it is added.
  void shared_expert(size_t layer, TokenRange rows);
  void shared_expert(size_t layer) { shared_expert(layer, all_rows()); }
  void add_shared_expert(size_t layer, TokenRange rows, float* x);
  /// What add_shared_expert() adds, as Ops::add_scaled.
  struct SharedRows {
    const float *rows, *logit;
  };
  SharedRows shared_rows(size_t layer) const {
    return {shared_out_, p_.spec.layers[layer].moe.shared_gate ? shared_logit_ : nullptr};
  }

 private:
  std::span<const kernels::AttentionSequence> sequences_of(const MicroBatch& of) const {
    return std::span(batch_->attention).subspan(of.sequences.first, of.sequences.count);
  }
  /// What the last product of an MLP is of: silu(gate h) * up h, or, without a gate, max(up h, 0).
  const float* activate(const MlpWeights& w, const float* h, int64_t n);
  /// attention(), with what computes the mixer: as SequenceMixer::compute(), to this output.
  template <class Mix>
  void attention_around(size_t layer, const MicroBatch& of, float* x, const Mix& mix);
  void add_positions(float* x);
  void cross(size_t layer, const MicroBatch& of, float* x);
  void run_mlp(const MlpWeights& w, const float* h, int64_t n, float* out);
  void norm(const float* x, const float* weight, const float* bias, TokenRange rows);
  bool experts_first(size_t layer) const;
  void norm_for_shared(size_t layer, const float* x, TokenRange rows);  ///< of experts_first()
  void scale(float* x, int64_t count, double factor);  ///< nothing where it is 1
  TokenRange all_rows() const { return {0, static_cast<uint32_t>(rows_)}; }

  Parts p_;
  int64_t hidden_, rows_ = 0;
  const StepBatch* batch_ = nullptr;
  kernels::Buffers buffers_;
  // h: normed input of a block; shared_h: of a shared expert with a norm of its own; out: a block's output before it is
  // added.
  float *h_, *out_, *gate_, *up_, *router_logits_, *shared_out_, *shared_logit_;
  float* shared_h_ = nullptr;
  Mixers mixers_;
  std::optional<CrossAttention> cross_;  ///< of an encoder-decoder model
  Sinusoids sinusoids_;
  std::vector<float> position_list_;
};

}  // namespace moestro::engine
