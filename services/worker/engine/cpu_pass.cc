// A step on the CPU: its schedule's task graph, run by the engine's thread and the threads of its operations.

#include <cstring>
#include <utility>

#include "services/worker/engine/forward.h"
#include "services/worker/engine/output_head.h"
#include "services/worker/engine/pass.h"
#include "services/worker/engine/pass_schedule.h"

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
  void poll(std::vector<lanes::TaskId>& ended) override { forward_.poll(ended); }
  Status wait_any(std::vector<lanes::TaskId>& ended) override { return forward_.wait_any(ended); }

 private:
  Forward& forward_;
  const lanes::StepMachine& machine_;
  const Head& head_;
};

class CpuPass final : public Pass {
 public:
  explicit CpuPass(const PassParts& parts)
      : schedule_(make_schedule(parts)),
        machine_(*schedule_),
        forward_({parts.math, parts.layouts, parts.experts, machine_, parts.clock, parts.kv_link, parts.stream,
                  parts.host_ops},
                 parts.options),
        head_(parts.math.spec, parts.math.weights, parts.math.ops),
        driver_(parts.clock),
        cache_(parts.math.cache),
        kv_link_(parts.kv_link) {}
  Status status() const { return forward_.status(); }

  Result<lanes::ExecutionTotals> run(const StepPlan& plan, const StepBatch& batch, std::vector<Status>& failed,
                                     std::vector<SequenceOutcome>& outcomes) override {
    head_not_finite_ = 0;
    machine_.begin(step_shape(batch));
    forward_.begin(plan.id, batch, failed);
    const auto run_head = [&] {
      if (batch.encodes) return forward_.write_memory();
      head_not_finite_ = head_.run(plan, batch, forward_.hidden(), failed, outcomes);
    };
    StepRunner runner(forward_, machine_, run_head);
    if (timeline_ != nullptr) timeline_->begin_step(plan.id.value);
    auto totals = driver_.run(machine_, runner, timeline_, breaks_);
    if (!totals.is_ok()) forward_.abandon();
    if (kv_link_ != nullptr) draw_kv(*kv_link_, carried_, timeline_);
    if (HostAttention* const host = forward_.host_attention()) host->draw(timeline_);
    if (timeline_ != nullptr) timeline_->end_step();
    return totals;
  }

  void copy_kv(std::span<const KvCopy> copies) override {
    for (const KvCopy& c : copies)
      for (size_t l = 0; l < cache_.layers() && c.from != c.to; ++l)
        if (cache_.block_bytes(l) > 0)
          std::memcpy(cache_.block(l, c.to), cache_.block(l, c.from), static_cast<size_t>(cache_.block_bytes(l)));
  }

  void set_breaks(lanes::Breaks* breaks) override { breaks_ = breaks; }
  int32_t routed_layer() const override { return forward_.routed_layer(); }
  void resume(PlanId plan) override {
    forward_.resume();
    if (timeline_ != nullptr) timeline_->begin_step(plan.value);
  }
  void set_watch(ExpertWatch* watch) override { forward_.set_watch(watch); }
  void set_timeline(lanes::Timeline* timeline) override { timeline_ = timeline; }
  std::span<const int32_t> routes() const override { return forward_.routes(); }
  std::span<const float> route_weights() const override { return forward_.route_weights(); }
  uint32_t not_finite() const override { return forward_.not_finite() + head_not_finite_; }
  DeviceWork device_work() const override {
    const KvRing* ring = forward_.kv_ring();
    if (ring == nullptr) return {};
    return {.kv_in_bytes = static_cast<uint64_t>(ring->loaded_bytes()),
            .kv_out_bytes = static_cast<uint64_t>(ring->saved_bytes())};
  }

 private:
  std::unique_ptr<lanes::Schedule> schedule_;
  lanes::StepMachine machine_;
  Forward forward_;
  OutputHead head_;
  lanes::StepDriver driver_;
  const KvCache& cache_;
  KvLink* const kv_link_;
  std::vector<KvCarried> carried_;  ///< scratch
  lanes::Timeline* timeline_ = nullptr;
  lanes::Breaks* breaks_ = nullptr;
  uint32_t head_not_finite_ = 0;
};

}  // namespace

Backend cpu_backend(kernels::Ops& ops, KvLink* kv_link, kernels::Ops* host_ops) {
  const auto make = [](const PassParts& parts) -> Result<std::unique_ptr<Pass>> {
    auto pass = std::make_unique<CpuPass>(parts);
    MOESTRO_RETURN_IF_ERROR(pass->status().with_context("buffers of a step (--step-tokens)"));
    return Result<std::unique_ptr<Pass>>(std::move(pass));
  };
  return {.ops = ops, .memory = kernels::host_memory(), .make_pass = make, .kv_link = kv_link,
          .parks = true, .host_ops = host_ops};
}

}  // namespace moestro::engine
