#pragma once
// A step on a CUDA device: gives the tasks of a step (common/lanes) their meaning as launches on its stream, while the
// host reads the routers' choices.
//
// The stream is a lane that is a queue. If no expert of a layer is expected to be missing, the machine is told to
// assume that, and everything up to the next router is queued before the host has seen the layer's routes, so the
// device never waits for the host. If an expert is missing after all, the rows that entered the layer's experts are
// still there: what was queued behind them is queued again, and overwrites what was computed in vain. If the device
// holds all experts, none can be missing: the whole step is queued, and the host counts and predicts meanwhile.
//
// Work that is queued ahead comes in segments: the experts of a layer, and everything up to the next router. In steps
// that decode one token per sequence, a repeated segment is one launch of a graph. (docs/decisions/0015)
//
// Layers whose dense weights take turns on the device are held while they may be queued again (docs/decisions/0064).

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "services/worker/cuda/cuda_graphs.h"
#include "services/worker/cuda/cuda_needs.h"
#include "services/worker/cuda/cuda_step.h"
#include "services/worker/cuda/host_experts.h"
#include "services/worker/cuda/kv_streams.h"
#include "services/worker/device/slot_table.h"
#include "services/worker/engine/pass.h"

namespace moestro::cuda {

/// The parts of a step's computation; outlive the engine.
struct CudaParts {
  kernels::cuda::CudaOps& ops;
  kernels::cuda::CudaMemory& memory;
  kernels::Ops& host_ops;       ///< for work that stays on the CPU
  device::SlotTable& slots;     ///< slots of the source that the engine leases from
  engine::KvLink* kv_link = nullptr;  ///< not null: it carries KV whose home is host memory
  bool graphs = true;           ///< whether segments of steps are launched as graphs
  int32_t calm_visits = 2;      ///< visits of a layer without a miss after which no miss is expected
};

/// The engine's backend on this device.
engine::Backend cuda_backend(const CudaParts& parts);

class CudaPass final : public engine::Pass, private lanes::TaskRunner {
 public:
  CudaPass(const engine::PassParts& parts, const CudaParts& cuda);
  ~CudaPass() override;
  /// Whether there was memory for all buffers.
  Status status() const;

  Result<lanes::ExecutionTotals> run(const engine::StepPlan& plan, const engine::StepBatch& batch,
                                     std::vector<Status>& failed,
                                     std::vector<engine::SequenceOutcome>& outcomes) override;
  void copy_kv(std::span<const KvCopy> copies) override { kv_.copy(copies); }
  void set_watch(engine::ExpertWatch* watch) override;
  void set_timeline(lanes::Timeline* timeline) override { step_.set_timeline(timeline_ = timeline); }
  std::span<const int32_t> routes() const override { return step_.routes(); }
  std::span<const float> route_weights() const override { return step_.route_weights(); }
  uint32_t not_finite() const override { return step_.not_finite(); }
  engine::DeviceWork device_work() const override { return work_; }

 private:
  struct Layer {
    int32_t moe = -1;               ///< its MoE layer; -1: a dense layer
    int32_t stream = 0;             ///< which of streams_ holds the rows that enter it
    int32_t calm = 0;               ///< visits since its last missing expert, up to calm_visits_
    MoestroCudaEvent routed = nullptr;  ///< its routes are in host memory
    float* kept = nullptr;              ///< of kept_states_; null: it has no states
  };
  /// Dense weights that take turns, of a layer that is held.
  struct HeldLayer {
    enum Is : uint8_t {
      kToBeQueued,
      kQueued,  ///< all kernels that read them
      kTold,    ///< and slots_ have been told
    };
    size_t layer = 0;
    Is is = kToBeQueued;
  };
  const model::ModelSpec& spec() const { return p_.math.spec; }
  float* stream(size_t layer) const { return streams_[layers_[layer].stream]; }
  /// Offset of a layer's addresses in tables_ and device_tables_.
  int64_t table_of(size_t layer) const { return layers_[layer].moe * experts_; }
  uint64_t address(int32_t expert) const { return reinterpret_cast<uint64_t>(p_.experts.data(at_.layer, expert)); }

  void begin(const engine::StepPlan& plan, const engine::StepBatch& batch, std::vector<Status>& failed);
  void begin_graphs();
  /// Whether every expert that the step may need is present and stays. Its layers are then all queued before the host
  /// reads any route.
  bool all_resident() const;

  // The machine's tasks:
  Status start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) override;
  Status flush() override { return p_.experts.request_missing(); }
  Status wait_any(std::vector<lanes::TaskId>& ended) override;
  bool expects_all(int32_t layer) override;

  // Queued, in order:
  Status queue(std::span<const lanes::TaskId> tasks);
  /// Queues a layer's experts, or what follows the embedding, and everything behind it up to a router, as a graph if
  /// there is one. Returns how many of `tasks` that were.
  Result<size_t> segment(std::span<const lanes::TaskId> tasks);
  Status queue_one(const lanes::Task& task);
  /// Whether a layer that is queued now may have to be computed once more.
  bool may_come_again() const { return !resident_ && machine_.assumptions() > 0; }
  void attention(size_t layer);
  void route(size_t layer);
  void send_routes(size_t layer) { step_.send_ids(layer, step_.all_rows(), layers_[layer].routed); }
  /// Sends the address table for the layer's experts, and keeps it in table_.
  void send_table(size_t layer);
  Status layer_experts(const lanes::Task& task);
  /// `after_router`: nothing else was sorted since the layer's router, and no expert was computed by itself.
  void launch_experts(size_t layer, bool after_router);
  /// Null: none is left out. Else, in device memory, for each input of the experts.
  const uint8_t* send_left_out();
  Status compute_arrived(int32_t expert);
  void head();
  void rewind(size_t layer);
  Status compute_on_host(std::span<const lanes::TaskId> tasks);

  // Dense weights that take turns (cuda_pass_dense.cc):
  bool reads_dense_again(size_t layer) const;
  bool dense_comes_again(size_t layer) const;
  bool try_hold(size_t layer);
  /// Waits for the layer's, before its kernels are queued.
  Status hold(size_t layer);
  /// Kernels that read them have been queued.
  void reads_dense(size_t layer);
  Status let_dense_go();
  size_t turns_from(size_t first) const;
  bool has_dense_behind(size_t layer);
  Result<std::optional<uint64_t>> place_of_segment(size_t first);

  /// Waits for the routes of the router that was queued first, and tells the machine.
  Status take_choice(lanes::TaskId router);
  Status take_arrival(std::vector<lanes::TaskId>& ended);
  Status find_places(size_t layer);
  /// Waits for the layer's routes, keeps the experts that have rows in routed_, and reports them.
  Status take_routes(size_t layer);
  /// Whether all could be leased. missing_ has those that could not.
  bool lease(size_t layer);
  bool lie_as_launched(size_t layer) const;
  Status let_go();
  engine::PassParts p_;
  kernels::cuda::CudaOps& ops_;
  kernels::cuda::DeviceQueue& queue_;
  kernels::cuda::CudaMemory& memory_;
  device::SlotTable& slots_;
  engine::ExpertWatch* watch_ = nullptr;
  lanes::Timeline* timeline_ = nullptr;
  std::unique_ptr<lanes::Schedule> schedule_;
  lanes::StepMachine machine_;
  lanes::StepDriver driver_;
  CudaStep step_;
  KvStreams kv_;
  std::optional<HostExperts> host_experts_;   ///< set if results may depend on where an expert is computed
  CudaGraphs graphs_;

  const int32_t calm_visits_;
  const int64_t hidden_, experts_, top_k_;
  int64_t chunk_ = 0;      ///< of layers that see chunks
  std::vector<Layer> layers_;
  kernels::Buffers buffers_;
  float* streams_[2];                         ///< the residual stream, before and after a sparse layer's back
  /// MoeSpec::before_attention alone: the experts' input of the last layer of each of streams_, which is not made again
  /// from the stream.
  float* kept_inputs_[2] = {};
  uint64_t* device_tables_;                   ///< [MoE layers, experts]: address of an expert, 0 if it is absent
  std::vector<uint64_t> tables_;              ///< their values after everything that was queued
  uint8_t* device_left_out_;
  KeptStatesRoom kept_room_;
  float* kept_states_;                        ///< of the layers with states behind one with experts
  std::vector<uint8_t> left_out_inputs_;  ///< scratch

  // Of the step:
  const engine::StepBatch* batch_ = nullptr;
  bool resident_ = false;                     ///< all_resident()
  bool head_queued_ = false;
  std::deque<HeldLayer> held_;                ///< in their order
  size_t kept_end_ = 0;                       ///< layers before it may have been queued on the last assumption
  size_t again_end_ = 0;                      ///< and those before it have, in vain
  bool told_ = false;                         ///< slots_ have been told of everything that was queued
  std::deque<lanes::TaskId> routers_;         ///< queued, and their choice not yet read
  std::vector<lanes::TaskId> read_of_;        ///< by expert: the task that waits for it
  size_t reads_ = 0;                          ///< that have not ended
  lanes::TaskId last_queued_ = -1;
  engine::LayerPart at_;                         ///< whose choice was read last
  std::span<const lanes::RoutedExpert> routed_;  ///< by it
  std::vector<lanes::Place> places_;             ///< of those
  bool as_graphs_ = false;                    ///< its segments may be graphs
  StepShape shape_;
  std::vector<uint64_t> table_;               ///< by expert of the current layer: its address
  std::vector<lanes::RoutedExpert> missing_;  ///< could not be leased
  std::vector<kernels::AttentionSequence> chunks_;      ///< scratch
  engine::DeviceWork work_;
};

}  // namespace moestro::cuda
