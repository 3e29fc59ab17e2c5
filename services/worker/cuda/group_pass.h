#pragma once
// A step in micro-batches on a CUDA device: the schedules for throughput (common/lanes/schedule.h), whose steps are so
// long that nothing has to be queued on an assumption.
//
// The compute stream is a lane that is a queue: it is given every task that waits only for what was queued before. The
// host reads the routers' choices while the device attends for later micro-batches, and asks for experts. KV whose home
// is host memory comes and goes beside that, or the host attends to it, by a thread of its own. Events in the queue say
// how far the device is; where several things are awaited at once, the engine's thread looks at each in turn.
// (docs/decisions/0066)

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "services/worker/cuda/cuda_pass.h"
#include "services/worker/cuda/cuda_step.h"
#include "services/worker/engine/host_attention.h"
#include "services/worker/engine/kv_ring.h"

namespace moestro::cuda {

class GroupPass final : public engine::Pass, private lanes::TaskRunner {
 public:
  GroupPass(const engine::PassParts& parts, const CudaParts& cuda);
  ~GroupPass() override;
  /// Whether there was memory for all buffers.
  Status status() const;

  Result<lanes::ExecutionTotals> run(const engine::StepPlan& plan, const engine::StepBatch& batch,
                                     std::vector<Status>& failed,
                                     std::vector<engine::SequenceOutcome>& outcomes) override;
  void copy_kv(std::span<const KvCopy> copies) override;
  void set_watch(engine::ExpertWatch* watch) override;
  void set_timeline(lanes::Timeline* timeline) override { step_.set_timeline(timeline_ = timeline); }
  std::span<const int32_t> routes() const override { return step_.routes(); }
  std::span<const float> route_weights() const override { return step_.route_weights(); }
  uint32_t not_finite() const override { return step_.not_finite(); }
  engine::DeviceWork device_work() const override;

 private:
  /// A task in the queue, whose end the host is to learn of: when the event is reached.
  struct Awaited {
    lanes::TaskId task = -1;
    MoestroCudaEvent end = nullptr;
  };
  const model::ModelSpec& spec() const { return p_.math.spec; }
  const engine::MicroBatch& micro_batch(const lanes::Task& task) const {
    return step_.batch().micro_batches[static_cast<size_t>(task.micro_batch)];
  }
  engine::TokenRange rows_of(const lanes::Task& task) const {
    return task.micro_batch == lanes::kAllMicroBatches ? step_.all_rows() : micro_batch(task).rows;
  }
  engine::LayerPart part_of(const lanes::Task& task) const {
    return {step_.moe_layer(static_cast<size_t>(task.layer)), task.micro_batch};
  }
  Status end_without_head();
  void abandon();

  // The machine's tasks:
  Status start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) override;
  Status flush() override;
  void poll(std::vector<lanes::TaskId>& ended) override;
  Status wait_any(std::vector<lanes::TaskId>& ended) override;
  bool is_computing() override;
  bool host_computes_apart() const override { return host_.has_value(); }

  // Queued, in order:
  Status queue(std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended);
  bool goes_on_elsewhere(const lanes::Task& task) const;
  Status queue_one(const lanes::Task& task);
  void attention(const lanes::Task& task);
  void expert(const lanes::Task& task);
  Status let_experts_go();
  /// Waits for a layer's dense weights that take turns on the device.
  Status hold_dense(size_t layer);
  /// All kernels that read them have been queued.
  Status let_dense_go();

  // What the host waits for:
  MoestroCudaEvent obtain_event();
  Result<bool> is_reached(MoestroCudaEvent end);
  /// What has ended by now, of each kind.
  Status look(std::vector<lanes::TaskId>& ended);
  Status end_first(std::vector<lanes::TaskId>& ended);
  void take_choice(const lanes::Task& router);
  void forecast();

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
  KvStreams kv_blocks_;                      ///< blocks on their way between steps
  std::optional<engine::KvRing> kv_;         ///< the home of the KV cache is host memory
  std::optional<engine::HostAttention> host_;  ///< where the KV of what decodes lies, the host attends
  kernels::Buffers buffers_;
  float* x_;                                 ///< the residual stream
  std::vector<MoestroCudaEvent> events_;     ///< used by no task
  std::vector<engine::KvCarried> carried_;   ///< scratch

  // Of the step:
  std::deque<Awaited> awaited_;
  size_t routers_queued_ = 0;
  bool head_queued_ = false;
  std::optional<MoeLayerId> forecast_due_;   ///< of a layer that has been routed
  struct UsedExpert {
    engine::LayerPart part;
    int32_t expert = 0;
  };
  std::vector<UsedExpert> used_;             ///< queued, and not let go of
  std::optional<size_t> dense_of_;           ///< the layer whose dense weights are held
};

}  // namespace moestro::cuda
