// Dense weights that take turns in a device's memory never change what the model says: bitwise what the engine says
// that has all of them in memory. A place that takes another layer is NaN until its bytes come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/device_bench.h"
#include "tests/device/played_steps.h"
#include "tests/lanes/recorded_timeline.h"

namespace moestro::device::testing {
namespace {

using engine::KvHome;
using engine::ScheduleKind;
using engine::testing::Bench;
using engine::testing::BenchOptions;
using engine::testing::Fixture;
using ::testing::HasSubstr;

BenchOptions plain() {
  BenchOptions options;
  options.engine.context_max = kContext;
  return options;
}

DeviceBenchOptions in_turn(uint32_t places, ScheduleKind schedule = ScheduleKind::kLayerwise) {
  DeviceBenchOptions options{.slots = 5, .dense_places = places, .engine = plain()};
  options.engine.engine.schedule = schedule;
  options.engine.engine.cut.count = schedule == ScheduleKind::kExpertPipeline ? 3 : 0;
  return options;
}

uint64_t dense_bytes(DeviceBench& device) {
  uint64_t bytes = 0;
  for (const uint32_t blob : device.device().streamed()) bytes += device.device().manifest().blobs[blob].length;
  return bytes;
}

TEST(DenseTurns, EveryModelSaysBitwiseTheSame) {
  for (const Fixture& fixture : engine::testing::fixtures()) {
    SCOPED_TRACE(fixture.name);
    Bench resident(fixture, plain());
    const Said expected = play(resident, 5);
    for (const ScheduleKind schedule : {ScheduleKind::kLayerwise, ScheduleKind::kExpertPipeline}) {
      DeviceBenchOptions options = in_turn(2, schedule);
      options.predictor = "next-layer-all";
      DeviceBench device(fixture, options);
      EXPECT_TRUE(play(device.bench(), 5) == expected) << static_cast<int>(schedule);
    }
  }
}

TEST(DenseTurns, WithEveryWindowAndLink) {
  Bench resident(deep_fixture(), plain());
  const Said expected = play(resident, 6);
  for (const uint32_t places : {1U, 2U, 3U, 9U})
    for (const bool half : {false, true})
      for (const uint64_t rate : {uint64_t{128} << 20, uint64_t{8} << 30})
        for (const ScheduleKind schedule : {ScheduleKind::kLayerwise, ScheduleKind::kExpertPipeline}) {
          DeviceBenchOptions options = in_turn(places, schedule);
          options.half_of_dense = half, options.link_bytes_per_s = rate, options.latency = Nanos(20'000);
          DeviceBench device(deep_fixture(), options);
          EXPECT_TRUE(play(device.bench(), 6) == expected)
              << places << " places, " << half << ", link " << rate << ", schedule " << static_cast<int>(schedule);
        }
}

TEST(DenseTurns, BesideAKvCacheWhoseHomeIsHostMemory) {
  Bench resident(deep_fixture(), plain());
  const Said expected = play(resident, 7);
  for (const uint64_t rate : {uint64_t{64} << 20, uint64_t{8} << 30})
    for (const int64_t tokens : {0, 800}) {
      DeviceBenchOptions options = in_turn(2, ScheduleKind::kExpertPipeline);
      options.engine.engine.kv_home = KvHome::kHost;
      options.engine.engine.kv_resident_tokens = tokens;
      options.engine.engine.kv_ring_tokens = 3 * kContext;
      options.link_bytes_per_s = rate;
      DeviceBench device(deep_fixture(), options);
      EXPECT_TRUE(play(device.bench(), 7) == expected) << rate << ", " << tokens << " tokens stay";
    }
}

TEST(DenseTurns, InEveryFormatOfWeights) {
  for (const DType dtype : {DType::kBF16, DType::kInt8, DType::kInt4}) {
    BenchOptions formats = plain();
    formats.experts = formats.dense = dtype;
    Bench resident(deep_fixture(), formats);
    DeviceBenchOptions options = in_turn(2);
    options.engine.experts = options.engine.dense = dtype;
    DeviceBench device(deep_fixture(), options);
    EXPECT_TRUE(play(device.bench(), 8) == play(resident, 8)) << dtype_name(dtype);
  }
}

TEST(DenseTurns, EachStepCopiesEachLayerOnce) {
  DeviceBench device(deep_fixture(), in_turn(2));
  const uint64_t bytes = dense_bytes(device);
  ASSERT_GT(bytes, 0u);
  for (uint64_t id = 1; id <= 4; ++id) {
    device.bench().add(id, {7, 8}).sample = true;
    const auto outcome = device.bench().run();
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
    EXPECT_EQ(outcome->dense_bytes, bytes);
    EXPECT_LE(outcome->dense_stall_us, outcome->stall_us);
  }
}

/// Also a wait for weights that KV ends counts once.
TEST(DenseTurns, StallsForWeightsAndForKvAddUpToNoMoreThanAll) {
  DeviceBenchOptions options = in_turn(2, ScheduleKind::kExpertPipeline);
  options.engine.engine.kv_home = KvHome::kHost;
  options.engine.engine.kv_ring_tokens = 3 * kContext;
  options.link_bytes_per_s = uint64_t{16} << 20;
  DeviceBench device(deep_fixture(), options);
  uint64_t for_kv = 0;
  for (uint64_t id = 1; id <= 6; ++id) {
    for (uint64_t line = 0; line < 6; ++line) device.bench().add(10 * id + line, {7, 8, 9}).sample = true;
    const auto outcome = device.bench().run();
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
    EXPECT_LE(outcome->dense_stall_us + outcome->kv_stall_us, outcome->stall_us + 5) << "but for rounding";
    for_kv += outcome->kv_stall_us;
    for (uint64_t line = 0; line < 6; ++line) device.bench().release(10 * id + line);
  }
  EXPECT_GT(for_kv, 0U);
}

TEST(DenseTurns, LateAndDamagedHostMemory) {
  for (const ScheduleKind schedule : {ScheduleKind::kLayerwise, ScheduleKind::kExpertPipeline}) {
    DeviceBenchOptions options = in_turn(2, schedule);
    options.late_host = true, options.late.late_dense = true;
    DeviceBench device(deep_fixture(), options);
    Bench resident(deep_fixture(), plain());
    EXPECT_TRUE(play(device.bench(), 9) == play(resident, 9)) << "nothing is at hand in host memory";
    // Found wrong since it was copied for the next step: it is copied again, or the step that used it fails.
    const uint32_t blob = device.device().streamed().front();
    device.late_host()->find_wrong(blob);
    const auto outcome = [&] {
      device.bench().add(900, {5}).sample = true;
      return device.bench().run();
    }();
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
  }
}

TEST(DenseTurns, WhatCannotBeReadFailsTheStepByNameAndTheNextOneTriesAgain) {
  DeviceBenchOptions options = in_turn(2);
  options.late_host = true;
  DeviceBench device(deep_fixture(), options);
  const auto step = [&](uint64_t id) {
    device.bench().add(id, {5, 6}).sample = true;
    auto outcome = device.bench().run();
    device.bench().release(id);
    return outcome;
  };
  ASSERT_TRUE(step(1).is_ok());
  const uint32_t blob = device.device().streamed().back();
  device.late_host()->break_blob(blob);
  int failed = 0;
  for (uint64_t id = 2; id < 5; ++id) {  // what was copied for it before may still do for one
    const auto outcome = step(id);
    if (outcome.is_ok()) continue;
    ++failed;
    EXPECT_THAT(outcome.status().message(), HasSubstr("dense weights of layer "));
    EXPECT_THAT(outcome.status().message(), HasSubstr("blob " + std::to_string(blob)));
  }
  EXPECT_GE(failed, 2);
  device.late_host()->break_blob(std::nullopt);
  EXPECT_TRUE(step(9).is_ok()) << step(10).status().message();
}

TEST(DenseTurns, TheTimelineHasTheirCopiesAndStalls) {
  DeviceBenchOptions options = in_turn(2);
  options.link_bytes_per_s = uint64_t{64} << 20;
  DeviceBench device(deep_fixture(), options);
  lanes::RecordedTimeline timeline;
  engine::Engine& engine = device.bench().engine();
  engine.set_timeline(&timeline);
  std::vector<int32_t> moe_layers;
  for (size_t l = 0; l < engine.spec().layers.size(); ++l)
    if (engine.spec().layers[l].moe_index) moe_layers.push_back(static_cast<int32_t>(l));
  device.foresight().set_timeline(&timeline, moe_layers);
  EXPECT_EQ(device.bench().greedy(deep_fixture().prompts("f32").front().ids, 6).size(), 6u);
  timeline.set_arrivals(nullptr);
  uint64_t bytes = 0;
  Nanos end{0};
  for (const lanes::Transfer& t : timeline.transfers()) {
    EXPECT_EQ(t.lane, lanes::Lane::kHostToDevice);
    if (t.expert >= 0) continue;
    EXPECT_EQ(t.kind, lanes::TaskKind::kWeightRead);
    EXPECT_GE(t.begin, end);
    bytes += t.bytes, end = t.end;
  }
  EXPECT_GE(bytes, 5 * dense_bytes(device));
  const auto stalls = std::ranges::count_if(timeline.stalls(), [](const lanes::Stall& s) { return s.dense && s.link; });
  EXPECT_GT(stalls, 0);
}

/// Why no engine of the fixture is made whose dense weights take turns on a device.
std::string refusal(const Fixture& fixture, ScheduleKind schedule) {
  auto host = store::ResidentSource::open(engine::testing::packed(fixture, DType::kF32, DType::kF32));
  if (!host.is_ok()) return host.status().message();
  SteadyClock clock;
  DeviceExpertsOptions options;
  options.device.vram_bytes = 1 << 24, options.device.link_bytes_per_s = 1 << 30;
  options.precision = DType::kF32, options.kv = schedule == ScheduleKind::kCgo;
  options.dense = DenseTurns{.blobs = store::dense_layers((*host)->manifest()), .places = 2};
  auto device = DeviceExperts::create(**host, options, clock);
  if (!device.is_ok()) return device.status().message();
  const auto ops = kernels::make_reference_ops(), host_ops = kernels::make_reference_ops();
  engine::Backend backend = engine::cpu_backend(*ops, (*device)->kv_link(), host_ops.get());
  backend.dense_over_link = true;
  engine::EngineOptions wanted{.model = "m", .kv_tokens = 1024, .context_max = kContext};
  wanted.schedule = schedule;
  if (options.kv) wanted.kv_home = KvHome::kHost, wanted.kv_ring_tokens = 3 * kContext;
  return engine::Engine::create(wanted, **device, backend, clock).status().message();
}

TEST(DenseTurns, WhatDoesNotGoIsRefusedByName) {
  const std::string cgo = refusal(deep_fixture(), ScheduleKind::kCgo);
  EXPECT_THAT(cgo, HasSubstr("--schedule cgo where dense weights take turns"));
  EXPECT_THAT(cgo, HasSubstr("give the device more (vram=SIZE, dense=counted)"));
  for (const Fixture& fixture : engine::testing::all_fixtures())
    if (fixture.has_encoder())
      EXPECT_THAT(refusal(fixture, ScheduleKind::kLayerwise), HasSubstr("a model with an encoder where dense weights"))
          << fixture.name;
}

}  // namespace
}  // namespace moestro::device::testing
