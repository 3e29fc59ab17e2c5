// Klotski's inequalities against figures computed by hand.

#include "common/planner/bubbles.h"

#include <gtest/gtest.h>

#include "tests/planner/planned_models.h"

namespace moestro::planner {
namespace {

constexpr double kReadExpert = 2 * 3.0 * 4096 * 14336, kReadAttention = 2 * 4096.0 * 10240;

/// Of a card whose computing is streaming weights at 100 GB/s.
PlanInput input(double link) {
  PlanInput in;
  in.sizes = mixtral_sizes();
  in.rates = rates_of(100e9, 1e18);
  in.rates.link_bytes_per_s = link;
  in.memories = {Memories::Device::kWhole, uint64_t{1} << 36, uint64_t{1} << 38, {}};
  in.needs = {.dense_bytes = in.sizes.dense_bytes, .expert_bytes = in.sizes.expert_bytes,
              .slot_bytes = in.sizes.expert_bytes, .experts = in.sizes.all_experts()};
  in.workload = {.prompt = 1, .generate = 1, .sequences = 10000};
  return in;
}

/// No expert stays.
Placement nothing_stays() {
  Placement placement;
  placement.device_experts = 16, placement.host_experts = placement.experts = 256;
  return placement;
}

TEST(Bubbles, CountWhatHasToArrive) {
  const PlanInput in = input(10e9);
  const Arrangement a{ScheduleName::kExpertPipeline, 10, 64, /*dense_share=*/0, /*kv_share=*/1, 16, true};
  const auto all = bubbles(in, a, nothing_stays());
  ASSERT_EQ(all.size(), 4u);
  const double attending = kReadAttention / 100e9 + 64 * 2 * 4096 / 100e9, router = 4 * 4096 * 8 / 100e9;
  EXPECT_NEAR(all[0].computing_s, 10 * attending, 0.01 * 10 * attending);
  EXPECT_NEAR(all[0].bringing_s, 4 * 4096 * 8 / 10e9, 1e-9) << "the router's weights";
  EXPECT_NEAR(all[1].computing_s, 10 * (attending + router), 0.01 * 10 * attending);
  EXPECT_NEAR(all[1].bringing_s, all[0].bringing_s + 2 * kReadExpert / 10e9, 1e-6) << "two of a token's experts";
  EXPECT_NEAR(all[2].bringing_s - all[1].bringing_s, kReadExpert / 10e9, 1e-6);
  EXPECT_NEAR(all[2].computing_s - all[1].computing_s, 2 * kReadExpert / 100e9, 1e-6);
  EXPECT_NEAR(all[3].computing_s - all[1].computing_s, 8 * kReadExpert / 100e9, 1e-5)
      << "each is read once by the device";
  EXPECT_NEAR(all[3].bringing_s, all[0].bringing_s + 8 * kReadExpert / 10e9 + kReadAttention / 10e9, 1e-5);
  EXPECT_EQ(all[0].short_s(), 0);
  EXPECT_NEAR(all[3].short_s(), all[3].bringing_s - all[3].computing_s, 1e-12);
}

TEST(Bubbles, ResidentExpertsAreNotBroughtAndTheCacheIs) {
  const PlanInput in = input(10e9);
  Arrangement a{ScheduleName::kExpertPipeline, 10, 64, 1, 0, 16, true};
  Placement half = nothing_stays();
  half.device_experts = 128 + 16;
  const double cache = 10 * (64 * 1 * 2 * 1024 * 2 / 10e9);  // of the one position that is there before the step
  const auto all = bubbles(in, a, half);
  EXPECT_NEAR(all[0].bringing_s, cache, 1e-9);
  EXPECT_NEAR(all[3].bringing_s, cache + 4 * kReadExpert / 10e9, 1e-5);
}

TEST(Bubbles, EnoughMicroBatchesCoverALinkThatIsNotTooSlow) {
  PlanInput in = input(50e9);
  const Arrangement a{ScheduleName::kExpertPipeline, 1, 64, 1, 1, 16, true};
  const auto least = bubble_free_micro_batches(in, a, nothing_stays(), 512);
  ASSERT_TRUE(least.has_value());
  EXPECT_GT(*least, 1);
  const auto is_short = [&](int64_t m) {
    Arrangement some = a;
    some.micro_batches = m;
    double seconds = 0;
    for (const Inequality& i : bubbles(in, some, nothing_stays())) seconds += i.short_s();
    return seconds > 0;
  };
  EXPECT_TRUE(is_short(*least - 1));
  EXPECT_FALSE(is_short(*least));
  // Where every micro-batch brings more than it computes, there is no such number.
  in.workload.prompt = 20000;
  Arrangement moved = a;
  moved.kv_share = 0;
  in.rates.link_bytes_per_s = 1e9;
  EXPECT_FALSE(bubble_free_micro_batches(in, moved, nothing_stays(), 512).has_value());
}

}  // namespace
}  // namespace moestro::planner
