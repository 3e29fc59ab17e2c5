#pragma once
// The tasks of a step on the CPU: the computation of each kind of task, on buffers that are allocated once.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/lanes/step_driver.h"
#include "common/model/model_spec.h"
#include "common/sharp_wait.h"
#include "kernels/aligned_vector.h"
#include "kernels/ops.h"
#include "services/worker/engine/engine_options.h"
#include "services/worker/engine/expert_dispatch.h"
#include "services/worker/engine/expert_watch.h"
#include "services/worker/engine/finite_guard.h"
#include "services/worker/engine/gate_lookahead.h"
#include "services/worker/engine/host_attention.h"
#include "services/worker/engine/kv_ring.h"
#include "services/worker/engine/layer_math.h"
#include "services/worker/engine/layer_stream.h"

namespace moestro::engine {

/// The least time that an emulated device computes (EngineOptions::compute_floor).
class ComputeFloor {
 public:
  ComputeFloor(Nanos least, const Clock& clock) : least_(least), clock_(clock) {}
  template <class Compute>
  void run(const Compute& compute) const {
    if (least_.count() == 0) return compute();
    const Nanos end = clock_.now() + least_;
    compute();
    wait_sharply_until(clock_, end);
  }

 private:
  Nanos least_;
  const Clock& clock_;
};

class Forward final : public lanes::TaskRunner {
 public:
  struct Parts {
    LayerMath::Parts math;
    const ExpertLayouts& layouts;
    ExpertDispatch& experts;
    lanes::StepMachine& machine;
    const Clock& clock;
    KvLink* kv_link = nullptr;  ///< not null: KV is moved, to places of the cache and back
    LayerStream* stream = nullptr;  ///< not null: dense weights take turns in memory
    kernels::Ops* host_ops = nullptr;  ///< not null: the host may attend, with these
  };
  Forward(const Parts& parts, const EngineOptions& options);
  /// Whether all buffers could be allocated.
  Status status() const;

  /// Begins the step that the following tasks belong to. The arguments must live until it has ended. `failed` has one
  /// Status per sequence of the plan. It receives the errors of sequences whose expert cannot be loaded, or whose
  /// activations become NaN or infinite.
  void begin(PlanId plan, const StepBatch& batch, std::vector<Status>& failed);
  void abandon();
  /// The step goes on after another one of this worker.
  void resume() { is_watched_ = watch_ != nullptr && watch_->wants_routes(); }
  /// The last MoE layer of the step whose routers have chosen; -1: none yet.
  int32_t routed_layer() const { return routed_layer_; }
  /// May be null; outlives this.
  void set_watch(ExpertWatch* watch);

  /// After the last layer of an encoder: the memory of the step's sequences.
  void write_memory() { math_.write_memory(x_.data()); }
  /// After the last layer: [rows, hidden], not yet normed.
  const float* hidden() const { return x_.data(); }
  /// Sequences of the step that failed because their activations are not finite.
  uint32_t not_finite() const { return guard_.not_finite(); }
  /// The step's choices: [moe layer][row][rank]. Weights in the same shape.
  std::span<const int32_t> routes() const {
    return {route_ids_.data(), static_cast<size_t>(moe_layers_ * rows_ * top_k_)};
  }
  std::span<const float> route_weights() const {
    return {route_weights_.data(), static_cast<size_t>(moe_layers_ * rows_ * top_k_)};
  }

  Status start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) override;
  Status flush() override;
  void poll(std::vector<lanes::TaskId>& ended) override;
  Status wait_any(std::vector<lanes::TaskId>& ended) override;
  /// Null: the KV cache lies where it is used.
  const KvRing* kv_ring() const { return kv_ ? &*kv_ : nullptr; }
  /// Null: the device attends.
  HostAttention* host_attention() { return host_ ? &*host_ : nullptr; }

  /// Any of its tasks but reads, moves and what the host does.
  Status compute(const lanes::Task& task);

 private:
  void route(const lanes::Task& task);
  void forecast();
  void tell_watch(MoeLayerId layer);
  bool computes(const lanes::Task& task) const;
  void attention(const lanes::Task& task);
  bool moves_are_under_way() const { return (kv_ && kv_->waits()) || (host_ && host_->waits()); }
  void take_moved(std::vector<lanes::TaskId>& ended);
  void expert(const lanes::Task& task);
  Status release(LayerPart part, int32_t expert);
  void release_held();
  void end_layer(size_t layer, TokenRange rows);
  void dense_mlp(const lanes::Task& task);
  void combine(const lanes::Task& task);
  LayerPart part_of(const lanes::Task& task) const {
    return {*spec().layers[static_cast<size_t>(task.layer)].moe_index, task.micro_batch};
  }
  const MicroBatch& micro_batch(const lanes::Task& task) const {
    return batch_->micro_batches[static_cast<size_t>(task.micro_batch)];
  }
  TokenRange rows_of(const lanes::Task& task) const {
    return task.micro_batch == lanes::kAllMicroBatches ? TokenRange{0, static_cast<uint32_t>(rows_)}
                                                       : micro_batch(task).rows;
  }
  /// Of the layer's choices and their weights, the first row's.
  int32_t* routes_of(MoeLayerId layer) { return route_ids_.data() + layer.value * rows_ * top_k_; }
  float* weights_of(MoeLayerId layer) { return route_weights_.data() + layer.value * rows_ * top_k_; }
  /// Of each sequence of a micro-batch of an encoder, the choices beyond what an expert takes
  /// (RouterSpec::sequence_rows).
  std::span<const uint8_t> beyond_room(const MicroBatch& of, std::span<const int32_t> ids);
  void clear_rows(std::span<const kernels::RoutedRow> rows);
  /// Writes the weighted inputs of a micro-batch's experts (RouterSpec::on_input).
  void weight_inputs(TokenRange rows, const float* weights);
  void run_expert(LayerPart part, int32_t expert, const std::byte* blob, std::span<const kernels::RoutedRow> rows);
  void fail_users(LayerPart part, int32_t expert, const Status& why);

  const model::ModelSpec& spec() const { return p_.math.spec; }
  kernels::Ops& ops() { return p_.math.ops; }

  Parts p_;
  const bool poison_;
  const bool release_early_;
  const ComputeFloor floor_;
  ExpertWatch* watch_ = nullptr;
  bool is_watched_ = false;  ///< the watch wants the routes of this step
  std::optional<GateLookahead> lookahead_;
  int32_t routed_layer_ = -1;
  std::optional<MoeLayerId> forecast_due_;  ///< of a layer that has been routed
  int64_t step_tokens_max_, hidden_;
  const kernels::GatedUnit gated_;
  int64_t top_k_ = 0, moe_layers_ = 0, rows_ = 0;
  const StepBatch* batch_ = nullptr;
  FiniteGuard guard_;
  LayerMath math_;
  std::optional<KvRing> kv_;  ///< the steps that move KV
  std::optional<HostAttention> host_;  ///< the others
  std::optional<lanes::TaskId> weights_awaited_;  ///< the read of a layer's dense weights
  struct HeldExpert {
    LayerPart part;
    int32_t expert = 0;
  };
  std::vector<HeldExpert> held_;  ///< computed and not let go of yet: PipelineParts::release_early is off
  kernels::AlignedVector<float> x_;  ///< the residual stream
  kernels::AlignedVector<float> expert_rows_;
  // RouterSpec::on_input alone: what experts compute on, [rows, top_k, hidden]; their rows in it; weights for the sum.
  kernels::AlignedVector<float> expert_inputs_;
  std::vector<kernels::RoutedRow> input_rows_;
  std::vector<float> ones_;
  std::vector<int32_t> route_ids_;
  std::vector<float> route_weights_;
  std::vector<uint8_t> beyond_;      ///< scratch: by choice
  std::vector<int64_t> taken_;       ///< scratch: by expert
};

}  // namespace moestro::engine
