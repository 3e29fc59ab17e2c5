// Steps that overtake others on an emulated device: slots, links, predictors, and KV whose home is host memory.

#include <gtest/gtest.h>

#include "tests/device/device_bench.h"
#include "tests/engine/overtaking.h"

namespace moestro::device::testing {
namespace {

using engine::KvHome;
using engine::ScheduleKind;
using engine::testing::Bench;
using engine::testing::BenchOptions;
using engine::testing::Fixture;
using namespace engine::testing::overtaking;

constexpr int kSteps = 3;

/// Both kinds of steps say what they say where all experts are at hand and nothing overtakes.
void expect_equal(const Fixture& model, DeviceBenchOptions options, const BenchOptions& alone, uint32_t seed) {
  options.engine.engine.overtaking_tokens_max = 16;
  options.engine.engine.context_max = alone.engine.context_max;
  DeviceBench device(model, options);
  Overtaker overtaker(device.bench(), seed + 1);
  EXPECT_GE(device.bench().engine().limits().overtaking_tokens_max, 1);
  const Said parked = play(device.bench(), seed, false, kSteps);
  EXPECT_GE(overtaker.taken, kSteps);
  Bench large(model, {.engine = alone.engine}), small(model, {.engine = alone.engine});
  EXPECT_TRUE(play(large, seed, false, kSteps) == parked) << "a step that parks says something else";
  EXPECT_TRUE(play(small, seed + 1, true, overtaker.taken) == overtaker.said) << "a step that overtakes does";
}

TEST(OvertakingOnADevice, WithEveryPredictorAndLink) {
  uint32_t seed = 1;
  for (const char* predictor : {"none", "auto", "next-layer-all"})
    for (const uint64_t rate : {uint64_t{64} << 20, uint64_t{8} << 30})
      for (const ScheduleKind schedule : {ScheduleKind::kLayerwise, ScheduleKind::kExpertPipeline}) {
        SCOPED_TRACE(predictor + std::string(" ") + std::to_string(rate));
        DeviceBenchOptions options{.slots = 5, .predictor = predictor, .link_bytes_per_s = rate};
        options.late_host = ++seed % 2 == 0;
        options.engine.engine.schedule = schedule;
        options.engine.engine.cut.count = 3;
        expect_equal(engine::testing::any_fixture(), options, {}, seed);
      }
}

TEST(OvertakingOnADevice, WithKvWhoseHomeIsHostMemory) {
  for (const auto& [schedule, resident_tokens] : {std::pair(ScheduleKind::kExpertPipeline, 0),
                                                  std::pair(ScheduleKind::kExpertPipeline, 64),
                                                  std::pair(ScheduleKind::kCgo, 0)})
    for (const int64_t micro_batches : {1, 3}) {
      SCOPED_TRACE(micro_batches);
      BenchOptions alone;
      alone.engine.context_max = 160;
      DeviceBenchOptions options{.slots = 5, .predictor = "next-layer-all", .link_bytes_per_s = uint64_t{64} << 20};
      options.engine.engine.schedule = schedule;
      options.engine.engine.kv_home = KvHome::kHost;
      options.engine.engine.kv_resident_tokens = resident_tokens;
      options.engine.engine.kv_ring_tokens = 3 * 160;
      options.engine.engine.cut.count = micro_batches;
      expect_equal(engine::testing::any_fixture(), options, alone, 20 + static_cast<uint32_t>(micro_batches));
    }
}

/// The source of a step's experts fails while another one has parked. Steps go on afterwards.
TEST(OvertakingOnADevice, AFailureInEitherStepLeavesNothingBehind) {
  int parked_failed = 0, overtaking_failed = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    DeviceBenchOptions options{.slots = 5, .predictor = "auto", .late_host = true, .late = {.seed = seed}};
    options.engine.engine.overtaking_tokens_max = 16;
    DeviceBench device(engine::testing::any_fixture(), options);
    Bench& bench = device.bench();
    {
      Overtaker overtaker(bench, seed);
      overtaker.may_fail = true;
      overtaker.after = [&] { overtaker.on = seed % 2 == 0; };  // or only once, and then the large step is alone
      device.late_host()->lose_after(static_cast<int>(seed));
      for (uint64_t id = 100; id < 105; ++id) bench.add(id, std::vector<TokenId>(8, static_cast<TokenId>(id % 7)));
      parked_failed += !bench.run().is_ok();
      overtaking_failed += overtaker.failed;
    }
    device.late_host()->lose_after(INT32_MAX);
    Bench alone(engine::testing::any_fixture());
    EXPECT_TRUE(play(bench, seed, false, 2) == play(alone, seed, false, 2)) << "the next steps go on";
  }
  EXPECT_GT(parked_failed, 0);
  EXPECT_GT(overtaking_failed, 0);
}

}  // namespace
}  // namespace moestro::device::testing
