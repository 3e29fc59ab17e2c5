// A pass on the CPU whose schedule is one that it cannot run: it refuses the first task that it does not know, by name.

#include <gtest/gtest.h>

#include "services/worker/engine/forward.h"
#include "services/worker/engine/pass.h"
#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

struct NothingForeseen final : lanes::ExpertOutlook {
  bool is_resident(int32_t, int32_t) const override { return false; }
  std::span<const int32_t> foreseen(int32_t) override { return {}; }
};

using MakeSchedule = std::function<std::unique_ptr<lanes::Schedule>(const lanes::ModelShape&)>;

/// The forward pass without a head.
class OtherPass final : public Pass {
 public:
  OtherPass(const PassParts& parts, const MakeSchedule& make, std::vector<lanes::MicroBatchShape>& seen)
      : schedule_(make(parts.shape)),
        machine_(*schedule_),
        forward_({parts.math, parts.layouts, parts.experts, machine_, parts.clock}, parts.options),
        driver_(parts.clock),
        seen_(seen) {}

  Result<lanes::ExecutionTotals> run(const StepPlan& plan, const StepBatch& batch, std::vector<Status>& failed,
                                     std::vector<SequenceOutcome>&) override {
    const lanes::StepShape step = step_shape(batch);
    seen_.assign(step.micro_batches.begin(), step.micro_batches.end());
    machine_.begin(step);
    forward_.begin(plan.id, batch, failed);
    auto totals = driver_.run(machine_, forward_, nullptr);
    if (!totals.is_ok()) forward_.abandon();
    return totals;
  }
  void copy_kv(std::span<const KvCopy>) override {}
  void set_watch(ExpertWatch* watch) override { forward_.set_watch(watch); }
  void set_timeline(lanes::Timeline*) override {}
  std::span<const int32_t> routes() const override { return forward_.routes(); }
  std::span<const float> route_weights() const override { return forward_.route_weights(); }
  uint32_t not_finite() const override { return 0; }

 private:
  std::unique_ptr<lanes::Schedule> schedule_;
  lanes::StepMachine machine_;
  Forward forward_;
  lanes::StepDriver driver_;
  std::vector<lanes::MicroBatchShape>& seen_;
};

BenchOptions options_with(const MakeSchedule& make, std::vector<lanes::MicroBatchShape>& seen) {
  BenchOptions options;
  options.make_backend = [&](kernels::Ops& ops, store::BlobSource&) {
    return Backend{ops, kernels::host_memory(), [&](const PassParts& parts) -> Result<std::unique_ptr<Pass>> {
                     return Result<std::unique_ptr<Pass>>(std::make_unique<OtherPass>(parts, make, seen));
                   }};
  };
  return options;
}

TEST(OtherSchedules, AreRefusedByTheNameOfTheirTask) {
  static NothingForeseen outlook;
  const std::pair<MakeSchedule, std::string> cases[] = {
      {[](const lanes::ModelShape& shape) {
         return lanes::make_expert_pipeline_schedule(shape, {.dense_share = 0}, outlook);
       },
       "the task 'read weights' on the lane 'host to device'"},
      {[](const lanes::ModelShape& shape) { return lanes::make_expert_pipeline_schedule(shape, {}, outlook); },
       "the task 'read expert' on the lane 'host to device'"},
      {[](const lanes::ModelShape& shape) { return lanes::make_cgo_schedule(shape, {.weight_share = 1}); },
       "the task 'qkv' on the lane 'compute'"},
  };
  for (const auto& [make, names] : cases) {
    std::vector<lanes::MicroBatchShape> seen;
    Bench bench(any_fixture(), options_with(make, seen));
    for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
      bench.add(sequence, {1, 2, 3});
      const auto refused = bench.run();
      ASSERT_FALSE(refused.is_ok()) << names;
      EXPECT_EQ(refused.status().code(), Code::kUnsupported);
      EXPECT_NE(refused.status().message().find("the forward pass cannot run " + names), std::string::npos)
          << refused.status().message();
    }
  }
}

TEST(OtherSchedules, AreToldWhatTheCacheHolds) {
  const MakeSchedule layerwise = [](const lanes::ModelShape& shape) {
    for (const lanes::LayerShape& layer : shape.layers) {
      EXPECT_GT(layer.output_parameters, 0);
      EXPECT_LT(layer.output_parameters, layer.attention_parameters);
      EXPECT_EQ(layer.sparse, layer.experts > 0);
      EXPECT_EQ(layer.attention_flops_per_position, layer.attended_bytes_per_token);  // 4 operations, or 4 bytes
    }
    return lanes::make_layerwise_schedule(shape);
  };
  std::vector<lanes::MicroBatchShape> seen;
  Bench bench(any_fixture(), options_with(layerwise, seen));
  bench.add(1, {1, 2, 3}).sample = false;
  ASSERT_TRUE(bench.run().is_ok());
  EXPECT_EQ(seen.at(0).cached, 0);
  bench.add(1, {4, 5}).sample = false;
  bench.add(2, {6}).sample = false;
  ASSERT_TRUE(bench.run().is_ok());
  EXPECT_EQ(seen.at(0).tokens, 3);
  EXPECT_EQ(seen[0].cached, 3);
  EXPECT_EQ(seen[0].context, 4 + 5 + 1);
}

}  // namespace
}  // namespace moestro::engine::testing
