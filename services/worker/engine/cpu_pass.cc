// A step on the CPU: its schedule's task graph, run by the engine's thread and the threads of its operations.

#include <cstring>
#include <utility>

#include "services/worker/engine/forward.h"
#include "services/worker/engine/output_head.h"
#include "services/worker/engine/pass.h"

namespace moestro::engine {
namespace {

/// The forward pass, and the head as the step's last task.
template <class Head>
class StepRunner final : public lanes::TaskRunner {
 public:
  StepRunner(Forward& forward, const lanes::StepMachine& machine, const Head& head)
      : forward_(forward), machine_(machine), head_(head) {}
  Status start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) override {
    // Of a thread's tasks there is one at a time.
    if (machine_[tasks.front()].kind != lanes::TaskKind::kHead) return forward_.start(lane, tasks, ended);
    head_();
    ended.push_back(tasks.front());
    return Status::ok();
  }
  Status flush() override { return forward_.flush(); }
  Status wait_any(std::vector<lanes::TaskId>& ended) override { return forward_.wait_any(ended); }

 private:
  Forward& forward_;
  const lanes::StepMachine& machine_;
  const Head& head_;
};

class CpuPass final : public Pass {
 public:
  explicit CpuPass(const PassParts& parts)
      : schedule_(lanes::make_layerwise_schedule(parts.shape)),
        machine_(*schedule_),
        forward_({parts.math, parts.layouts, parts.experts, machine_, parts.clock}, parts.options),
        head_(parts.math.spec, parts.math.weights, parts.math.ops),
        driver_(parts.clock),
        cache_(parts.math.cache) {}
  Status status() const { return forward_.status(); }

  Result<lanes::ExecutionTotals> run(const StepPlan& plan, const StepBatch& batch, std::vector<Status>& failed,
                                     std::vector<SequenceOutcome>& outcomes) override {
    head_not_finite_ = 0;
    machine_.begin(step_shape(batch));
    forward_.begin(plan.id, batch, failed);
    const auto run_head = [&] { head_not_finite_ = head_.run(plan, batch, forward_.hidden(), failed, outcomes); };
    StepRunner runner(forward_, machine_, run_head);
    if (timeline_ != nullptr) timeline_->begin_step(plan.id.value);
    auto totals = driver_.run(machine_, runner, timeline_);
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
  lanes::StepMachine machine_;
  Forward forward_;
  OutputHead head_;
  lanes::StepDriver driver_;
  const KvCache& cache_;
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
