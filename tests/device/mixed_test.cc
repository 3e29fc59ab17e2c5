// Full and low copies of experts in the slots of an emulated device.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/device/device_bench.h"

namespace moestro::device::testing {
namespace {

using engine::testing::Bench;

class DeviceMixedTest : public ::testing::Test {
 protected:
  static std::vector<TokenId> prompt() {
    std::vector<TokenId> ids;
    for (const auto& r : engine::testing::any_fixture().prompts("f32"))
      if (r.ids.size() > ids.size()) ids = r.ids;
    return ids;
  }
  DeviceBenchOptions options(int32_t slots, std::optional<MixedOptions> mixed) const {
    DeviceBenchOptions options{.slots = slots};
    options.engine.deterministic = false;
    options.engine.engine.mixed = mixed;
    return options;
  }
  std::vector<float> score(Bench& bench) { return bench.score({ids_}, 1).front(); }

  const engine::testing::Fixture& fixture_ = engine::testing::any_fixture();
  const std::vector<TokenId> ids_ = prompt();
  const MixedOptions mixed_{.low = DType::kBF16, .t1 = 0, .t2 = 1, .share = 0.3};
};

/// Slots are filled with NaN before each copy, so a row that read another slot, or another layout, would show.
TEST_F(DeviceMixedTest, ComputesWithTheCopyThatIsThere) {
  Bench resident(fixture_, options(1, {}).engine);
  const std::vector<float> full = score(resident);
  for (const std::string predictor : {"none", "auto"})
    for (const bool late_host : {false, true})
      for (const int32_t slots : {2, 4, 9}) {
        DeviceBenchOptions with = options(slots, mixed_);
        with.predictor = predictor, with.late_host = late_host;
        DeviceBench device(fixture_, with);
        EXPECT_GT(device.device().low_slots(), 0);
        EXPECT_LT(device.device().slots(), slots);
        const std::vector<float> mixed = score(device.bench());
        for (size_t i = 0; i < full.size(); ++i)
          ASSERT_NEAR(full[i], mixed[i], 0.1) << predictor << ", " << slots << " slots";
        const tier::TierCounters c = device.device().tier_counters();
        EXPECT_GT(c.low, 0u);
        EXPECT_EQ(c.skipped, 0u);
        EXPECT_LT(c.low, c.hits + c.late + c.misses);
      }
}

TEST_F(DeviceMixedTest, WithASlotForEveryExpertThereAreNoLowCopies) {
  Bench resident(fixture_, options(1, {}).engine);
  DeviceBench device(fixture_, options(1000, mixed_));
  EXPECT_EQ(device.device().low_slots(), 0);
  EXPECT_EQ(score(resident), score(device.bench()));
}

TEST_F(DeviceMixedTest, FewerBytesCrossTheLink) {
  DeviceBench full(fixture_, options(4, {})), mixed(fixture_, options(4, mixed_));
  (void)score(full.bench()), (void)score(mixed.bench());
  EXPECT_LT(mixed.device().tier_counters().moved_bytes, full.device().tier_counters().moved_bytes);
}

TEST_F(DeviceMixedTest, WhatIsLeftOutIsNotCopied) {
  MixedOptions skip = mixed_;
  skip.t2 = 0;
  DeviceBench device(fixture_, options(4, skip));
  (void)score(device.bench());
  const tier::TierCounters c = device.device().tier_counters();
  EXPECT_GT(c.skipped, 0u);
  EXPECT_EQ(c.low, 0u);
}

TEST_F(DeviceMixedTest, APrecisionThatThePackLacksIsRefused) {
  Bench bench(fixture_, options(1, {}).engine);
  const SteadyClock clock;
  MixedOptions int4 = mixed_;
  int4.low = DType::kInt4;
  const auto made = DeviceExperts::create(
      bench.source(),
      {.device = {.vram_bytes = 1 << 20, .link_bytes_per_s = 1 << 30}, .precision = DType::kF32, .mixed = int4}, clock);
  ASSERT_FALSE(made.is_ok());
  const std::string& message = made.status().message();
  EXPECT_TRUE(message.starts_with("--mixed: ")) << message;
  EXPECT_NE(message.find("has no experts as int4; `moestro pack --experts` adds them"), std::string::npos) << message;
}

TEST_F(DeviceMixedTest, AMemoryForOneKindOfCopiesIsRefused) {
  Bench bench(fixture_, options(1, mixed_).engine);
  const SteadyClock clock;
  const auto blobs = bench.source().manifest();
  const uint64_t one = blobs.blobs[*blobs.expert_blob(MoeLayerId(0), ExpertId(0), DType::kF32)].length;
  const auto made = DeviceExperts::create(
      bench.source(),
      {.device = {.vram_bytes = one, .link_bytes_per_s = 1 << 30}, .precision = DType::kF32, .mixed = mixed_}, clock);
  ASSERT_FALSE(made.is_ok());
  EXPECT_NE(made.status().message().find("in addition to the low copies of --mixed"), std::string::npos)
      << made.status().message();
}

}  // namespace
}  // namespace moestro::device::testing
