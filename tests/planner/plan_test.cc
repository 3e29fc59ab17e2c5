// Whole plans: of phases, what-ifs, and that no gain of memory or speed is forecast to cost anything.

#include "common/planner/plan.h"

#include <gmock/gmock.h>

#include <chrono>
#include <random>

#include "tests/planner/planned_models.h"

namespace moestro::planner {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

PlanInput input(Memories::Device device, uint64_t device_gib, uint64_t host_gib) {
  PlanInput in;
  in.sizes = mixtral_sizes();
  in.rates = rates_of(100e9, 1e12);
  if (device != Memories::Device::kHost) in.rates.link_bytes_per_s = 20e9;
  in.rates.drive_bytes_per_s = 2e9;
  in.memories = {device, device_gib * kGiB, host_gib * kGiB, {}};
  in.schedule = ScheduleName::kLayerwise;
  in.needs = {.dense_bytes = in.sizes.dense_bytes, .kv_bytes = in.sizes.kv_bytes(1, 640), .workspace_bytes = 1 << 28,
              .process_bytes = 1 << 26, .expert_bytes = in.sizes.expert_bytes, .slot_bytes = in.sizes.expert_bytes,
              .experts = in.sizes.all_experts()};
  return in;
}

TEST(Plan, PhasesAddUp) {
  const auto plan = make_plan(input(Memories::Device::kHost, 0, 128));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->choice.placement.host_experts, 256) << "90 GB fit in 128 GiB";
  EXPECT_EQ(plan->choice.prompt.tokens, 512);
  EXPECT_DOUBLE_EQ(plan->choice.prompt.seconds, plan->choice.prompt.forecast.seconds) << "one step";
  EXPECT_DOUBLE_EQ(plan->choice.decode.seconds, 128 * plan->choice.decode.forecast.seconds);
  EXPECT_DOUBLE_EQ(plan->choice.decode.step.context, 512 + 64.5);
  EXPECT_DOUBLE_EQ(plan->choice.decode.tokens_per_s(), 1 / plan->choice.decode.forecast.seconds);
}

TEST(Plan, WhatWouldHelpIsWhatBounds) {
  const auto plan = make_plan(input(Memories::Device::kHost, 0, 48));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->choice.decode.forecast.bound(), Lane::kDrive);
  ASSERT_EQ(plan->what_ifs.size(), 2u);
  EXPECT_EQ(plan->what_ifs[0].what, "1 GiB more host memory");
  EXPECT_GT(plan->what_ifs[0].decode_tokens_per_s, plan->choice.decode.tokens_per_s());
  EXPECT_GT(plan->what_ifs[1].decode_tokens_per_s, 1.5 * plan->choice.decode.tokens_per_s());
}

TEST(Plan, ALinkTwiceAsFastWhereTheLinkBounds) {
  const auto plan = make_plan(input(Memories::Device::kWhole, 24, 128));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->choice.decode.forecast.bound(), Lane::kLink);
  ASSERT_EQ(plan->what_ifs.size(), 4u);
  EXPECT_EQ(plan->what_ifs[2].what, "a link twice as fast");
  EXPECT_GT(plan->what_ifs[2].decode_tokens_per_s, 1.3 * plan->choice.decode.tokens_per_s());
  EXPECT_DOUBLE_EQ(plan->what_ifs[1].decode_tokens_per_s, plan->choice.decode.tokens_per_s())
      << "host memory has it all";
}

/// A layer's copy is known beforehand. An expert's is not, unless it is foreseen.
TEST(Plan, ASmallerShareOfDenseWeightsIsSaidWhereItHelps) {
  const auto said = [](double share, double link_bytes_per_s, bool prefetch) {
    PlanInput in = input(Memories::Device::kExpertsOnly, 8, 160);
    in.rates = rates_of(20e9, 1e12), in.rates.link_bytes_per_s = link_bytes_per_s, in.prefetch = prefetch;
    in.memories.counts_dense = true, in.memories.dense_share = share;
    in.needs.dense_layer_bytes = in.sizes.dense_layer_bytes;
    const auto plan = make_plan(in);
    EXPECT_TRUE(plan.is_ok()) << plan.status().message();
    const WhatIf& last = plan->what_ifs.back();
    if (!last.what.starts_with("dense=")) return std::string();
    EXPECT_LT(last.seconds, plan->choice.seconds());
    return last.what;
  };
  EXPECT_EQ(said(1, 16e9, false), "dense=0% in --device") << "copied while layers compute, and experts are waited for";
  EXPECT_EQ(said(0, 16e9, false), "") << "it is so already";
  EXPECT_EQ(said(1, 5e9, true), "") << "the link bounds, and would carry more";
}

TEST(Plan, MeasuredHitsCountForDecoding) {
  PlanInput in = input(Memories::Device::kWhole, 24, 128);
  const auto even = make_plan(in);
  in.device_hits = 0.9;
  const auto measured = make_plan(in);
  ASSERT_TRUE(even.is_ok() && measured.is_ok());
  EXPECT_GT(measured->choice.decode.tokens_per_s(), even->choice.decode.tokens_per_s());
  EXPECT_DOUBLE_EQ(measured->choice.prompt.tokens_per_s(), even->choice.prompt.tokens_per_s());
}

TEST(Plan, HitsMeanNothingWhereTheDeviceHoldsAll) {
  PlanInput in = input(Memories::Device::kWhole, 120, 16);
  in.rates.drive_bytes_per_s.reset();
  const auto all = make_plan(in);
  in.device_hits = 0.5;
  const auto with_hits = make_plan(in);
  ASSERT_TRUE(all.is_ok() && with_hits.is_ok());
  EXPECT_LT(all->choice.placement.host_experts, 256);
  EXPECT_DOUBLE_EQ(with_hits->choice.decode.seconds, all->choice.decode.seconds);
}

TEST(Plan, ADriveOfUnknownSpeedIsRefusedOnlyIfItIsNeeded) {
  PlanInput in = input(Memories::Device::kHost, 0, 128);
  in.rates.drive_bytes_per_s.reset();
  EXPECT_TRUE(make_plan(in).is_ok());
  in.memories.host_bytes = 48 * kGiB;
  const auto refused = make_plan(in);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("the drive's rate is missing"));
}

/// Of anything that can be had more of.
struct Gain {
  const char* what;
  void (*give)(PlanInput&);
};
constexpr Gain kGains[] = {
    {"device memory", [](PlanInput& in) { in.memories.device_bytes += 3 * kGiB; }},
    {"host memory", [](PlanInput& in) { in.memories.host_bytes += 3 * kGiB; }},
    {"link", [](PlanInput& in) { if (in.rates.link_bytes_per_s) *in.rates.link_bytes_per_s *= 1.3; }},
    {"latency", [](PlanInput& in) { in.rates.link_latency_s /= 2; }},
    {"drive", [](PlanInput& in) { *in.rates.drive_bytes_per_s *= 1.3; }},
    {"KV bandwidth", [](PlanInput& in) { in.rates.kv_bytes_per_s *= 1.3; }},
    {"attention", [](PlanInput& in) { in.rates.attention_operations_per_s *= 1.3; }},
    {"foresight", [](PlanInput& in) { in.foreseen = in.foreseen.value_or(1.0) / 2 + 0.5; }},
};

TEST(Plan, NoGainIsForecastToBeALoss) {
  std::mt19937_64 random(23);
  const auto between = [&](double a, double b) { return std::uniform_real_distribution(a, b)(random); };
  int compared = 0;
  for (int i = 0; i < 600; ++i) {
    PlanInput in = input(static_cast<Memories::Device>(i % 2 == 0 ? 0 : 2), 6 + random() % 90, 8 + random() % 120);
    const double bandwidth = between(10e9, 1e12), operations = between(1e11, 1e14);
    const Rates products = rates_of(bandwidth, operations);
    in.rates.dense = products.dense, in.rates.experts = products.experts, in.rates.router = products.router;
    in.rates.kv_bytes_per_s = bandwidth, in.rates.attention_operations_per_s = operations;
    if (in.rates.link_bytes_per_s) in.rates.link_bytes_per_s = between(5e9, 60e9);
    in.rates.link_latency_s = between(0, 1e-3);
    in.rates.drive_bytes_per_s = between(0.5e9, 10e9);
    in.workload.sequences = static_cast<int64_t>(1 + random() % 64);
    in.prefetch = random() % 4 != 0;
    if (random() % 2 == 0) in.foreseen = between(0, 1);
    const auto before = make_plan(in);
    if (!before.is_ok()) continue;
    for (const Gain& gain : kGains) {
      PlanInput more = in;
      gain.give(more);
      const auto after = make_plan(more);
      ASSERT_TRUE(after.is_ok()) << after.status().message();
      // Each phase by itself may be slower, if another number of sequences at once is better for both together.
      EXPECT_LE(after->choice.seconds(), before->choice.seconds() * (1 + 1e-12)) << gain.what << ", round " << i;
      ++compared;
    }
    for (const StepForecast* f : {&before->choice.prompt.forecast, &before->choice.decode.forecast}) {
      EXPECT_LE(f->least_seconds, f->seconds * (1 + 1e-12));
      EXPECT_LE(f->seconds, f->most_seconds * (1 + 1e-12));
      for (const Lane lane : {Lane::kCompute, Lane::kLink, Lane::kDrive})
        EXPECT_LE(f->busy(lane), f->seconds * (1 + 1e-12)) << lane_name(lane);
    }
  }
  EXPECT_GT(compared, 2000);
}

TEST(Plan, TakesWellUnderASecond) {
  PlanInput in = input(Memories::Device::kWhole, 24, 48);
  in.sizes.layers.resize(94, in.sizes.layers.front());
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(make_plan(in).is_ok());
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 0.2);
}

}  // namespace
}  // namespace moestro::planner
