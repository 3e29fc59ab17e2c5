#pragma once
// The parts of a layer that every pass on a CUDA device queues, on rows of a step, and what comes of them: choices of
// routers, notes of rows that are not finite, tokens. When they are queued is the pass's business.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/lanes/timeline.h"
#include "kernels/cuda/cuda_memory.h"
#include "services/worker/cuda/cuda_head.h"
#include "services/worker/cuda/device_marks.h"
#include "services/worker/engine/finite_guard.h"
#include "services/worker/engine/gate_lookahead.h"
#include "services/worker/engine/pass.h"

namespace moestro::cuda {

class CudaStep {
 public:
  /// All outlive it.
  CudaStep(const engine::PassParts& parts, kernels::cuda::CudaOps& ops, kernels::cuda::CudaMemory& memory,
           kernels::Ops& host_ops);
  ~CudaStep();
  CudaStep(const CudaStep&) = delete;
  CudaStep& operator=(const CudaStep&) = delete;
  /// Whether there was memory for all buffers.
  Status status() const;

  void set_watch(engine::ExpertWatch* watch);
  void set_timeline(lanes::Timeline* timeline) { marks_.set_timeline(timeline_ = timeline); }

  /// The arguments live until the step has ended.
  void begin(const engine::StepPlan& plan, const engine::StepBatch& batch, std::vector<Status>& failed);
  /// When all of it has been computed: tokens and scores, and sequences that have failed.
  void finish(std::vector<Status>& failed, std::vector<engine::SequenceOutcome>& outcomes);
  const engine::StepBatch& batch() const { return *batch_; }
  int64_t rows() const { return rows_; }
  engine::TokenRange all_rows() const { return {0, static_cast<uint32_t>(rows_)}; }

  engine::LayerMath& math() { return math_; }
  engine::FiniteGuard& guard() { return guard_; }
  DeviceMarks& marks() { return marks_; }
  MoeLayerId moe_layer(size_t layer) const { return *p_.math.spec.layers[layer].moe_index; }

  // Of a layer's choices, [rows, top_k] on the device and, once they have been sent, in host memory:

  int32_t* device_ids(size_t layer, int64_t row = 0) { return device_ids_ + choice(layer, row); }
  float* device_weights(size_t layer, int64_t row = 0) { return device_weights_ + choice(layer, row); }
  std::span<const int32_t> ids(size_t layer, engine::TokenRange rows) const {
    return {ids_.data() + choice(layer, rows.first), static_cast<size_t>(rows.count * top_k_)};
  }

  // Queued, in order:

  /// The router's choices for these rows, and the weighted inputs of their experts, where the model has them
  /// (RouterSpec::on_input).
  void route(size_t layer, engine::TokenRange rows, const float* x);
  void weight_inputs(size_t layer, engine::TokenRange rows);
  /// Sends the ids of these rows beside the computing, which goes on; `arrived` is reached when they are there. Behind
  /// a graph, not in it: only an event recorded by a call of its own is certain to say, from that call on, that what
  /// was launched before has not ended yet.
  void send_ids(size_t layer, engine::TokenRange rows, MoestroCudaEvent arrived);
  /// Asks the routers of later layers for all rows, if the watch wants that. On the compute stream: the next layer but
  /// one's guesses are written where these are.
  void guess(size_t layer, const float* x);
  /// Inputs of experts: a row, or each of its choices.
  int64_t inputs_of_row() const { return inputs_of_row_; }
  const float* expert_input() const { return expert_inputs_ != nullptr ? expert_inputs_ : math_.h(); }
  float* expert_rows() { return expert_rows_; }  ///< [rows, top_k, hidden]
  void compute_expert(engine::LayerPart part, int32_t expert);
  /// Of these rows: y = x and what the layer's experts add; the guard; and the norm for what follows: the next layer's
  /// attention, or the head.
  void combine(size_t layer, engine::TokenRange rows, const float* x, float* y);
  void dense_mlp(size_t layer, engine::TokenRange rows, float* x);
  void head();

  // By the host:

  bool is_watched() const { return is_watched_; }  ///< the watch wants the routes of this step
  int32_t asked_ahead() const { return asked_ahead_; }  ///< routers that each layer asks
  /// All of the layer's choices are in host memory, and have been sorted, which made `routed`.
  void tell_watch(size_t layer, std::span<const lanes::RoutedExpert> routed);
  void fail_users(engine::LayerPart part, int32_t expert, const Status& why);
  void clear_rows(std::span<const kernels::RoutedRow> rows);
  /// What was queued with it stays queued; the sequences that it was for have failed if it was wrong.
  void release(engine::LayerPart part, int32_t expert);
  /// Waits for a layer's dense weights that take turns, which LayerStream::try_hold() has not found there.
  Status wait_for_dense(size_t layer);
  /// Rows after `layer` and later ones have not been looked at.
  void forget_notes(size_t layer);

  // For the last step:

  std::span<const int32_t> routes() const { return {ids_.data(), choices()}; }
  std::span<const float> route_weights() const { return {weights_.data(), choices()}; }
  uint32_t not_finite() const { return guard_.not_finite() + head_not_finite_; }

 private:
  const model::ModelSpec& spec() const { return p_.math.spec; }
  int64_t choice(size_t layer, int64_t row) const {
    return (static_cast<int64_t>(moe_layer(layer).value) * rows_ + row) * top_k_;
  }
  size_t choices() const { return static_cast<size_t>(moe_layers_ * rows_ * top_k_); }
  int64_t notes_count() const { return static_cast<int64_t>(spec().layers.size()) * rows_; }
  float* guesses_of(size_t layer) const { return guesses_->data() + moe_layer(layer).value % 2 * guesses_max_; }
  void end_layer(size_t layer, engine::TokenRange rows, const float* x, float* y, MoestroCudaResidual work);
  void take_notes();

  engine::PassParts p_;
  kernels::cuda::CudaOps& ops_;
  kernels::cuda::DeviceQueue& queue_;
  kernels::cuda::CudaMemory& memory_;
  const int64_t hidden_, experts_, top_k_, moe_layers_, step_tokens_max_;
  const int64_t inputs_of_row_;
  engine::LayerMath math_;
  CudaHead head_;
  engine::FiniteGuard guard_;
  DeviceMarks marks_;
  engine::ExpertWatch* watch_ = nullptr;
  lanes::Timeline* timeline_ = nullptr;
  std::optional<engine::GateLookahead> lookahead_;
  kernels::Buffers buffers_;
  float *expert_rows_, *device_weights_;
  // RouterSpec::on_input alone: [rows, top_k, hidden], and weights for the sum.
  float *expert_inputs_ = nullptr, *ones_ = nullptr;
  int32_t *device_ids_, *device_notes_;  ///< [MoE layers, rows, top_k]; [layers, rows]: the layer where a row was not
                                         ///< finite after it, else -1
  kernels::cuda::Pinned<int32_t> ids_, notes_;
  kernels::cuda::Pinned<float> weights_;
  int64_t guesses_max_ = 0;                   ///< of a layer
  std::optional<kernels::cuda::Pinned<float>> guesses_;  ///< of two layers: one may be written while the other is read
  MoestroCudaStream out_ = nullptr;           ///< for copies that the host reads during computation
  MoestroCudaEvent computed_ = nullptr;

  // Of the step:
  const engine::StepPlan* plan_ = nullptr;
  const engine::StepBatch* batch_ = nullptr;
  int64_t rows_ = 0;
  bool is_watched_ = false;
  int32_t asked_ahead_ = 0;
  std::vector<kernels::RoutedRow> input_rows_;          ///< scratch
  uint32_t head_not_finite_ = 0;
};

}  // namespace moestro::cuda
