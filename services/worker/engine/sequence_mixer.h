#pragma once
// What mixes a layer's rows over the positions of their sequences: attention of some kind. One object for each kind
// that a model has computes it for all layers of that kind. To the rest of the engine a kind is this interface and what
// common/model/mixer.h says of its sizes. What it keeps of positions lies in the KV cache, what it keeps of a sequence
// as a whole in sequence_states.h: the scheduler moves, shares and drops blocks and slots without knowing the kind.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/model/model_spec.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "services/worker/engine/dense_weights.h"
#include "services/worker/engine/kv_cache.h"
#include "services/worker/engine/sequence_states.h"
#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

/// What layers compute with; all of it outlives them.
struct MathParts {
  const model::ModelSpec& spec;
  const DenseWeights& weights;
  kernels::Ops& ops;
  kernels::Memory& memory;
  KvCache& cache;
  SequenceStates& states;
  const RopeTables& rope;
};

/// Where a mixer's rows go.
struct MixerOutput {
  float* product;
  float* onto = nullptr;  ///< not null: they are added to these, and `product` is scratch

  /// The last product of a mixer, from row `first` on.
  void project(kernels::Ops& ops, const float* x, int64_t first, int64_t n, const kernels::Weight& w,
               const float* bias) const {
    const int64_t at = first * w.rows;
    if (onto != nullptr) ops.matmul_onto(x, n, w, bias, product + at, onto + at);
    else ops.matmul(x, n, w, bias, product + at);
  }
};

/// Of a row.
struct AttentionWidths {
  int64_t q = 0, kv = 0;
  friend bool operator==(const AttentionWidths&, const AttentionWidths&) = default;
};
AttentionWidths widths_of(const model::AttentionSpec& attention);
/// Of any layer's grouped-query attention.
AttentionWidths widest_heads(const model::ModelSpec& spec);

/// What attention computes with, [rows, width], from the step's first row on.
struct AttentionRows {
  float *q = nullptr, *k = nullptr, *v = nullptr, *attended = nullptr;
  AttentionWidths widths = {};
};

class SequenceMixer {
 public:
  virtual ~SequenceMixer() = default;
  /// Whether all buffers could be allocated.
  virtual Status status() const = 0;
  /// Begins a step; `batch` must live until it has ended.
  virtual void begin(const StepBatch& batch) = 0;
  /// For the rows of a micro-batch, prompts and decodes alike: writes their state, and out.product = mixed(h),
  /// projected back to the hidden width, or adds that to out.onto. h and out are of the step's first row, in the
  /// backend's memory. `sequences`: of the micro-batch, with the block tables to use.
  virtual void compute(size_t layer, const MicroBatch& of, std::span<const kernels::AttentionSequence> sequences,
                       const float* h, const MixerOutput& out) = 0;

  // compute() in parts, where the host attends (host_attention.h); not of every kind, see check_host_attention().

  /// Rows of a layer: q, k and v after project(), as cache and attention take them; `attended` is read by finish().
  virtual AttentionRows rows_of(size_t layer);
  virtual void project(size_t layer, const MicroBatch& of, const float* h);
  virtual void finish(size_t layer, const MicroBatch& of, const MixerOutput& out);
};

/// Grouped-query attention (model::AttentionSpec). Buffers are for steps of at most `step_tokens_max` rows.
std::unique_ptr<SequenceMixer> make_grouped_attention(const MathParts& parts, int64_t step_tokens_max);
/// Multi-head latent attention (model::LatentSpec).
std::unique_ptr<SequenceMixer> make_latent_attention(const MathParts& parts, int64_t step_tokens_max);
/// The gated delta rule (model::DeltaSpec).
std::unique_ptr<SequenceMixer> make_gated_delta(const MathParts& parts, int64_t step_tokens_max);

/// Those of a model: one for each kind that its layers have.
class Mixers {
 public:
  Mixers(const MathParts& parts, int64_t step_tokens_max);
  Status status() const;
  void begin(const StepBatch& batch);
  SequenceMixer& of_layer(size_t layer) const { return *of_layer_[layer]; }

 private:
  std::vector<std::unique_ptr<SequenceMixer>> all_;
  std::vector<SequenceMixer*> of_layer_;
};

/// Whether this backend can compute every layer's mixer, with these settings; an error names what is missing.
Status check_mixers(const model::ModelSpec& spec, const VisiblePositions& visible, const kernels::Ops& ops);

/// For mixers: sends numbers to the backend's memory.
void send(kernels::Memory& memory, float* to, const std::vector<float>& values);

}  // namespace moestro::engine
