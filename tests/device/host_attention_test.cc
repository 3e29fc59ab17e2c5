// cgo beside an emulated device, by the clock: steps take what the planner says of the same lanes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "common/planner/choose_schedule.h"
#include "tests/device/device_bench.h"
#include "tests/kernels/counted_allocations.h"

namespace moestro::device::testing {
namespace {

using engine::KvHome;
using engine::ScheduleKind;
using engine::testing::Fixture;

constexpr int64_t kSequences = 48, kMicroBatches = 3, kContext = 32, kPrompt = 4, kDecoded = 6;
constexpr Nanos kTask = std::chrono::milliseconds(2);  ///< of an expert, or of a part of attention, on the device
constexpr double kLeast = 0.6;                         ///< of forecast / run
constexpr double kCopySeconds = 20e-3;                 ///< of an expert

Fixture mixtral() {
  const auto all = engine::testing::fixtures();
  return *std::ranges::find(all, "mixtral_llama3", &Fixture::name);
}

planner::ModelSizes sizes_of(const std::filesystem::path& pack) {
  const auto source = store::ResidentSource::open(pack);
  EXPECT_TRUE(source.is_ok()) << source.status().message();
  const auto model = model::describe_model((*source)->manifest().config_json, "");
  EXPECT_TRUE(model.is_ok()) << model.status().message();
  auto sizes = planner::model_sizes(*model, {.experts = DType::kF32, .dense = DType::kF32, .kv = DType::kF32});
  EXPECT_TRUE(sizes.is_ok()) << sizes.status().message();
  return std::move(sizes).value();
}

/// Only what the device waits for takes time: its floor, and copies.
planner::Rates rates_of(const planner::ModelSizes& sizes) {
  constexpr double kFast = 1e12;
  planner::Rates rates;
  rates.dense = rates.experts = rates.router = planner::ProductCurve::roofline(4, kFast, kFast);
  rates.kv_bytes_per_s = rates.attention_operations_per_s = kFast;
  rates.floor_s = std::chrono::duration<double>(kTask).count();
  rates.link_bytes_per_s = static_cast<double>(sizes.expert_bytes) / kCopySeconds;
  return rates;
}

/// Of steps that decode all sequences, half-way.
double forecast_seconds(const planner::ModelSizes& sizes, int64_t slots) {
  planner::PlanInput in;
  in.sizes = sizes, in.rates = rates_of(sizes);
  in.workload = {.prompt = kPrompt, .generate = kDecoded, .sequences = kSequences};
  in.needs = {.dense_bytes = sizes.dense_bytes, .expert_bytes = sizes.expert_bytes, .slot_bytes = sizes.expert_bytes,
              .experts = sizes.all_experts()};
  in.memories = {.device = planner::Memories::Device::kExpertsOnly, .host_bytes = uint64_t{1} << 34, .counts_kv = true};
  const planner::Arrangement a{planner::ScheduleName::kCgo, kMicroBatches, kSequences / kMicroBatches, 1, 0, 0, true};
  in.memories.device_bytes = static_cast<uint64_t>(slots) * sizes.expert_bytes + needs_of(in, a).kv_bytes;
  const auto option = forecast_arrangement(in, a);
  EXPECT_TRUE(option.is_ok()) << option.status().message();
  if (!option.is_ok()) return 0;
  EXPECT_EQ(option->placement.device_experts, slots);
  return option->decode.forecast.seconds;
}

/// The shortest of some steps, which other programs have disturbed least.
double run_seconds(const Fixture& fixture, const planner::ModelSizes& sizes, int64_t slots) {
  DeviceBenchOptions options{.slots = static_cast<int32_t>(slots), .predictor = "next-layer-all"};
  options.link_bytes_per_s = static_cast<uint64_t>(static_cast<double>(sizes.expert_bytes) / kCopySeconds);
  engine::EngineOptions& o = options.engine.engine;
  o.schedule = ScheduleKind::kCgo, o.kv_home = KvHome::kHost;
  o.context_max = kContext, o.cut.count = kMicroBatches, o.compute_floor = kTask;
  DeviceBench device(fixture, options);
  std::vector<double> seconds;
  for (int64_t step = 0; step <= kDecoded; ++step) {
    for (int64_t id = 1; id <= kSequences; ++id) {
      std::vector<TokenId> tokens(static_cast<size_t>(step == 0 ? kPrompt : 1));
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>((id * 29 + step * 7 + 3) % 90);
      device.bench().add(static_cast<uint64_t>(id), tokens).sample = true;
    }
    const auto outcome = device.bench().run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    if (!outcome.is_ok()) return 0;
    if (step > 1) seconds.push_back(static_cast<double>(outcome->step_us) * 1e-6);
  }
  return *std::ranges::min_element(seconds);
}

/// With all experts on the device its computing decides, with half of them the link does. Other programs may take the
/// cores meanwhile, so the bound is loose, and a busy machine gets more chances.
TEST(HostAttention, StepsTakeAboutWhatIsForecast) {
  const Fixture fixture = mixtral();
  const auto& pack = engine::testing::packed(fixture, DType::kF32, DType::kF32);
  const planner::ModelSizes sizes = sizes_of(pack);
  for (const int64_t slots : {sizes.all_experts(), sizes.all_experts() / 2}) {
    const double forecast = forecast_seconds(sizes, slots);
    double run = run_seconds(fixture, sizes, slots);
    for (int again = 0; again < 5 && forecast < kLeast * run; ++again)
      run = std::min(run, run_seconds(fixture, sizes, slots));
    std::printf("%lld of %lld experts on the device: forecast %.3f s, run %.3f s\n", static_cast<long long>(slots),
                static_cast<long long>(sizes.all_experts()), forecast, run);
    EXPECT_GT(forecast / run, kLeast);
    EXPECT_LT(forecast / run, 1.4);
  }
}

TEST(HostAttention, StepsAllocateNothingAfterWarmUp) {
  const Fixture fixture = mixtral();
  DeviceBenchOptions options{.slots = 12};
  engine::EngineOptions& o = options.engine.engine;
  o.schedule = ScheduleKind::kCgo, o.kv_home = KvHome::kHost;
  o.context_max = 64, o.cut.count = kMicroBatches;
  DeviceBench device(fixture, options);
  engine::StepOutcome outcome;
  int allocated = 0;
  for (int step = 0; step < 40; ++step) {
    for (int64_t id = 1; id <= 12; ++id)
      device.bench().add(static_cast<uint64_t>(id), {static_cast<TokenId>((id * 29 + step * 7) % 90)}).sample = true;
    // The host's scratch grows with the longest context met: one that is longer than any below comes first.
    if (step < 2) device.bench().add(99, std::vector<TokenId>(step == 0 ? 60 : 1, 5)).sample = true;
    if (step == 2) device.bench().release(99);
    const int64_t before = moestro::test::allocations.load();
    const Status ran = device.bench().run(outcome);
    ASSERT_TRUE(ran.is_ok()) << ran.message();
    allocated += step >= 20 && moestro::test::allocations.load() > before;
  }
  EXPECT_LE(allocated, 10) << "of 20 steps: in some a thread of the device looks back on its uses";
}

}  // namespace
}  // namespace moestro::device::testing
