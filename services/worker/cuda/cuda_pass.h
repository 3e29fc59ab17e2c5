#pragma once
// A step on a CUDA device: layer after layer is queued on its stream, and the host looks at the routers' choices beside
// it.
//
// A layer is a front (attention, router, shared expert) and a back (experts, their sum, the guard). Where no expert is
// expected to be missing the back of a layer and the front of the next one are queued before the host has seen the
// layer's routes: the device never waits for the host. If one was missing after all, the stream of rows as it entered
// the back is still there: the expert is fetched, the back is queued again, and what was queued behind it is
// overwritten. Where the device holds all experts nothing can be missing: the whole step is queued, and the host counts
// and predicts beside it. Elsewhere the host waits for the routes, queues the experts that are there, and each other
// one when it has been copied.
//
// What is queued ahead goes in segments: experts and back of a layer, and all up to the next router. In steps that
// decode one token a sequence a segment that comes again is one launch of a graph. (docs/decisions/0015)

#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "services/worker/cuda/cuda_graphs.h"
#include "services/worker/cuda/cuda_head.h"
#include "services/worker/cuda/host_experts.h"
#include "services/worker/cuda/kv_streams.h"
#include "services/worker/device/slot_table.h"
#include "services/worker/engine/finite_guard.h"
#include "services/worker/engine/gate_lookahead.h"
#include "services/worker/engine/pass.h"

namespace moestro::cuda {

/// What a step is computed with; outlives the engine.
struct CudaParts {
  kernels::cuda::CudaOps& ops;
  kernels::cuda::CudaMemory& memory;
  kernels::Ops& host_ops;       ///< for what stays on the CPU
  device::SlotTable& slots;     ///< of the source that the engine leases from
  bool graphs = true;           ///< whether segments of steps are launched as graphs
  int32_t calm_visits = 2;      ///< of a layer, without a miss, after which it is taken to have all that it will want
};

/// The engine's backend on this device.
engine::Backend cuda_backend(const CudaParts& parts);

class CudaPass final : public engine::Pass {
 public:
  CudaPass(const engine::PassParts& parts, const CudaParts& cuda);
  ~CudaPass() override;
  /// Whether there was memory for all buffers.
  Status status() const;

  Result<lanes::ExecutionTotals> run(const engine::StepPlan& plan, const engine::StepBatch& batch,
                                     std::vector<Status>& failed,
                                     std::vector<engine::SequenceOutcome>& outcomes) override;
  void copy_kv(std::span<const engine::KvCopy> copies) override { kv_.copy(copies); }
  void set_watch(engine::ExpertWatch* watch) override;
  void set_timeline(lanes::Timeline* timeline) override { timeline_ = timeline; }
  std::span<const int32_t> routes() const override {
    return {ids_.data(), static_cast<size_t>(moe_layers_ * rows_ * top_k_)};
  }
  std::span<const float> route_weights() const override {
    return {weights_.data(), static_cast<size_t>(moe_layers_ * rows_ * top_k_)};
  }
  uint32_t not_finite() const override { return guard_.not_finite() + head_not_finite_; }
  engine::DeviceWork device_work() const override { return work_; }

 private:
  struct Layer {
    int32_t moe = -1;               ///< its MoE layer; -1: a dense one
    int32_t stream = 0;             ///< which of streams_ holds the rows that enter it
    int32_t calm = 0;               ///< visits since an expert of it was missing, up to calm_visits_
    MoestroCudaEvent routed = nullptr;  ///< its routes are in host memory
  };
  const model::ModelSpec& spec() const { return p_.math.spec; }
  MoeLayerId moe_layer(size_t layer) const { return MoeLayerId(static_cast<uint32_t>(layers_[layer].moe)); }
  float* stream(size_t layer) const { return streams_[layers_[layer].stream]; }
  /// Where a layer's addresses are in tables_ and device_tables_.
  int64_t table_of(size_t layer) const { return layers_[layer].moe * experts_; }
  int64_t first_choice(size_t layer) const { return layers_[layer].moe * rows_ * top_k_; }
  uint64_t notes_count() const { return layers_.size() * static_cast<uint64_t>(rows_); }
  float* guesses_of(size_t layer) const { return guesses_->data() + layers_[layer].moe % 2 * guesses_max_; }
  uint64_t address(int32_t expert) const { return reinterpret_cast<uint64_t>(p_.experts.data(expert)); }

  void begin(PlanId plan, const engine::StepBatch& batch, std::vector<Status>& failed);
  void begin_graphs();
  /// Whether every expert that the step may want is there and stays: its layers are then queued as a whole before the
  /// host looks at any route.
  bool all_resident() const;
  void queue_ahead(size_t layer);
  Status queue_layers();
  Status take_all_routes();
  Status run_layers();
  /// Whether the layer's back is queued before its routes are known.
  bool expects_all(size_t layer) const;

  // Queued, in order:
  /// Experts and back of the layer before `next`, where there is one, and from `next` on all up to a router: as a graph
  /// where there is one.
  void segment(size_t next);
  void fronts(size_t next);
  void front(size_t layer);
  void guess(size_t layer);
  void send_routes(size_t layer);
  /// table_ becomes what the layer's experts are launched with.
  void send_table(size_t layer);
  void launch_experts(size_t layer);
  void back(size_t layer);
  void look_at(size_t layer, float* x);
  void compute_one(int32_t expert);
  void release(int32_t expert);
  void fail_users(int32_t expert, const Status& why);
  void clear_rows(std::span<const kernels::RoutedRow> rows);
  void rewind(size_t layer);

  /// Waits for the layer's routes and tells who wants to know. The experts that have rows.
  Result<std::span<const lanes::RoutedExpert>> take_routes(size_t layer);
  /// Whether all could be leased; missing_ could not.
  bool lease(std::span<const lanes::RoutedExpert> routed);
  bool lie_as_launched(size_t layer, std::span<const lanes::RoutedExpert> routed) const;
  Status compute(size_t layer, std::span<const lanes::RoutedExpert> routed);
  Status compute_what_arrives(size_t count);
  Status let_go(std::span<const lanes::RoutedExpert> routed);
  void take_notes();

  /// A point of the step on the device's clock, while a timeline is drawn: 2 * layer + 1 behind a front, + 2 behind a
  /// back.
  void mark(size_t at);
  void draw(uint64_t plan, Nanos begin);

  engine::PassParts p_;
  kernels::cuda::CudaOps& ops_;
  kernels::cuda::DeviceQueue& queue_;
  kernels::cuda::CudaMemory& memory_;
  device::SlotTable& slots_;
  engine::ExpertWatch* watch_ = nullptr;
  lanes::Timeline* timeline_ = nullptr;
  std::optional<engine::GateLookahead> lookahead_;
  engine::LayerMath math_;
  CudaHead head_;
  KvStreams kv_;
  std::optional<HostExperts> host_experts_;   ///< where results may depend on who computes
  engine::FiniteGuard guard_;
  CudaGraphs graphs_;

  const int32_t calm_visits_;
  int64_t hidden_, experts_, top_k_, moe_layers_, step_tokens_max_, rows_ = 0;
  std::vector<Layer> layers_;
  int32_t last_stream_ = 0;                   ///< which of streams_ leaves the last layer
  kernels::Buffers buffers_;
  float* streams_[2];                         ///< the residual stream, before and after a sparse layer's back
  float *expert_rows_, *device_weights_;
  int32_t *device_ids_, *device_notes_;  ///< [MoE layers, rows, top_k]; [layers, rows]: the layer where a row was not
                                         ///< finite after it, else -1
  uint64_t* device_tables_;                   ///< [MoE layers, experts]: where an expert lies, 0 if it is not there
  std::vector<uint64_t> tables_;              ///< what those are behind everything that was queued
  uint8_t* device_left_out_;
  kernels::cuda::Pinned<int32_t> ids_, notes_;
  kernels::cuda::Pinned<float> weights_;
  int64_t guesses_max_ = 0;                   ///< of a layer
  std::optional<kernels::cuda::Pinned<float>> guesses_;  ///< of two layers: one may be written while the other is read
  MoestroCudaStream out_ = nullptr;           ///< what the host reads beside the computing
  MoestroCudaEvent computed_ = nullptr;
  std::vector<MoestroCudaEvent> marks_;

  // Of the step:
  const engine::StepBatch* batch_ = nullptr;
  bool as_graphs_ = false;                    ///< its segments may be graphs
  StepShape shape_;
  int32_t asked_ahead_ = 0;                   ///< routers that each layer asks
  std::vector<uint64_t> table_;               ///< by expert of the layer at hand: where it lies
  std::vector<lanes::RoutedExpert> missing_;  ///< could not be leased
  uint32_t head_not_finite_ = 0;
  engine::DeviceWork work_;
  Nanos stalled_{0};
};

}  // namespace moestro::cuda
