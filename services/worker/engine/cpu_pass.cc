// A step on the CPU: its schedule's task graph, run by the engine's thread and the threads of its operations.

#include <cstring>
#include <utility>

#include "common/sharp_wait.h"
#include "services/worker/engine/forward.h"
#include "services/worker/engine/output_head.h"
#include "services/worker/engine/pass.h"

namespace moestro::engine {
namespace {

/// The time that an emulated device computes longer than this one.
class ComputeFloor {
 public:
  ComputeFloor(Nanos least, const Clock& clock) : least_(least), clock_(clock) {}
  template <class Compute>
  Status run(const lanes::Task& task, const Compute& compute) const {
    if (least_.count() == 0 || (task.kind != lanes::TaskKind::kExpert && task.kind != lanes::TaskKind::kAttention))
      return compute();
    const Nanos end = clock_.now() + least_;
    MOESTRO_RETURN_IF_ERROR(compute());
    wait_sharply_until(clock_, end);
    return Status::ok();
  }

 private:
  Nanos least_;
  const Clock& clock_;
};

/// The forward pass, and the head as the graph's last task.
template <class Head>
class StepRunner final : public lanes::TaskRunner {
 public:
  StepRunner(Forward& forward, const Head& head, const ComputeFloor& floor)
      : forward_(forward), head_(head), floor_(floor) {}
  Status run(lanes::TaskId id, const lanes::Task& task) override {
    if (task.kind != lanes::TaskKind::kHead) return floor_.run(task, [&] { return forward_.run(id, task); });
    head_();
    return Status::ok();
  }
  Result<bool> start(lanes::TaskId id, const lanes::Task& task) override { return forward_.start(id, task); }
  Status flush() override { return forward_.flush(); }
  Result<lanes::TaskId> wait_any() override { return forward_.wait_any(); }

 private:
  Forward& forward_;
  const Head& head_;
  const ComputeFloor& floor_;
};

class CpuPass final : public Pass {
 public:
  explicit CpuPass(const PassParts& parts)
      : schedule_(lanes::make_layerwise_schedule(parts.shape)),
        forward_({parts.math, parts.layout, parts.experts, *schedule_}, parts.options.step_tokens_max,
                 parts.options.poison_kv),
        head_(parts.math.spec, parts.math.weights, parts.math.ops),
        floor_(parts.options.compute_floor, parts.clock),
        executor_(parts.clock),
        cache_(parts.math.cache) {}
  Status status() const { return forward_.status(); }

  Result<lanes::ExecutionTotals> run(const StepPlan& plan, const StepBatch& batch, std::vector<Status>& failed,
                                     std::vector<SequenceOutcome>& outcomes) override {
    head_not_finite_ = 0;
    graph_.clear();
    schedule_->begin({batch.rows(), batch.context, static_cast<int64_t>(batch.logit_rows.size()),
                      static_cast<int64_t>(batch.summed_rows.size())},
                     graph_);
    forward_.begin(plan.id, batch, graph_, failed);
    const auto run_head = [&] { head_not_finite_ = head_.run(plan, batch, forward_.hidden(), failed, outcomes); };
    StepRunner runner(forward_, run_head, floor_);
    if (timeline_ != nullptr) timeline_->begin_step(plan.id.value);
    auto totals = executor_.execute(graph_, runner, timeline_);
    if (timeline_ != nullptr) timeline_->end_step();
    if (!totals.is_ok()) forward_.abandon();
    return totals;
  }

  void copy_kv(std::span<const KvCopy> copies) override {
    for (const KvCopy& c : copies)
      for (size_t l = 0; l < cache_.layers() && c.from != c.to; ++l)
        std::memcpy(cache_.block(l, c.to), cache_.block(l, c.from), static_cast<size_t>(cache_.block_bytes(l)));
  }

  void set_watch(ExpertWatch* watch) override { forward_.set_watch(watch); }
  void set_timeline(lanes::Timeline* timeline) override { timeline_ = timeline; }
  std::span<const int32_t> routes() const override { return forward_.routes(); }
  std::span<const float> route_weights() const override { return forward_.route_weights(); }
  uint32_t not_finite() const override { return forward_.not_finite() + head_not_finite_; }

 private:
  std::unique_ptr<lanes::Schedule> schedule_;
  Forward forward_;
  OutputHead head_;
  ComputeFloor floor_;
  lanes::CpuExecutor executor_;
  const KvCache& cache_;
  lanes::TaskGraph graph_;
  lanes::Timeline* timeline_ = nullptr;
  uint32_t head_not_finite_ = 0;
};

}  // namespace

Backend cpu_backend(kernels::Ops& ops) {
  return {ops, kernels::host_memory(), [](const PassParts& parts) -> Result<std::unique_ptr<Pass>> {
            auto pass = std::make_unique<CpuPass>(parts);
            MOESTRO_RETURN_IF_ERROR(pass->status().with_context("buffers of a step (--step-tokens)"));
            return Result<std::unique_ptr<Pass>>(std::move(pass));
          }};
}

}  // namespace moestro::engine
