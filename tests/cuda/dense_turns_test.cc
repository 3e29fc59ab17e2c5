// Dense weights that take turns in a CUDA device's memory never change what the model says: bitwise what the same
// device says that has all of them. Copies and kernels happen as late as they may, and a place that takes another layer
// is NaN until its bytes come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "kernels/cuda/emulated/functions.h"
#include "kernels/cuda/emulator/streams.h"
#include "tests/device/device_bench.h"
#include "tests/device/failing_functions.h"
#include "tests/device/played_steps.h"
#include "tests/engine/moved_blocks.h"
#include "tests/lanes/recorded_timeline.h"

namespace moestro::device::testing {
namespace {

namespace emulated = kernels::cuda::emulated;
using engine::testing::Fixture;
using ::testing::HasSubstr;

constexpr int32_t kAll = 1 << 20;

DeviceBenchOptions on_cuda(int32_t slots, uint32_t places) {
  DeviceBenchOptions options{.slots = slots, .dense_places = places, .cuda = &emulated::functions()};
  options.engine.engine.context_max = kContext;
  options.chunk_bytes = 4096;  // several a layer
  return options;
}

std::unique_ptr<DeviceBench> late_bench(const Fixture& fixture, const DeviceBenchOptions& options, int32_t late = 3) {
  emulated::make_streams_late(late);
  auto device = std::make_unique<DeviceBench>(fixture, options);
  emulated::make_streams_late(0);
  return device;
}

uint64_t dense_bytes(DeviceBench& device) {
  uint64_t bytes = 0;
  for (const uint32_t blob : device.device().streamed()) bytes += device.device().manifest().blobs[blob].length;
  return bytes;
}

Result<engine::StepOutcome> step(DeviceBench& device, uint64_t id) {
  device.bench().add(id, {5, 6}).sample = true;
  auto outcome = device.bench().run();
  device.bench().release(id);
  return outcome;
}

TEST(CudaDenseTurns, EveryModelSaysBitwiseTheSame) {
  for (const Fixture& fixture : on_gpus(engine::testing::fixtures())) {
    const std::vector<std::vector<TokenId>> texts{fixture.prompts("f32").at(1).ids, fixture.prompts("f32").at(0).ids};
    DeviceBench all(fixture, on_cuda(kAll, 0));
    DeviceBenchOptions options = on_cuda(5, 2);
    options.predictor = "gate";
    const auto device = late_bench(fixture, options);
    EXPECT_EQ(device->bench().score(texts, 9), all.bench().score(texts, 9)) << fixture.name;
    EXPECT_EQ(device->bench().greedy(texts[0], 3), all.bench().greedy(texts[0], 3)) << fixture.name;
  }
}

/// Where all experts are there, where they are missing, and where they are believed to be there and are not.
TEST(CudaDenseTurns, WithEveryKindOfLayerAndWindow) {
  uint64_t rewinds = 0;
  for (const Fixture& fixture : one_of_each_gpu_layer()) {
    DeviceBench all(fixture, on_cuda(kAll, 0));
    const Said want = play_few(all.bench(), 5);
    for (const auto& [places, slots, expects_all, half] :
         {std::tuple(1U, 9, true, false), {2U, kAll, true, false}, {2U, 2, true, false}, {3U, 2, true, true}}) {
      DeviceBenchOptions options = on_cuda(slots, places);
      options.expects_all = expects_all, options.half_of_dense = half, options.predictor = "gate";
      const auto device = late_bench(fixture, options);
      EXPECT_TRUE(play_few(device->bench(), 5) == want) << fixture.name << ", " << places << " places, " << slots;
      rewinds += device->bench().device_work().rewinds;
    }
  }
  EXPECT_GT(rewinds, 0u) << "layers were queued once more";
}

TEST(CudaDenseTurns, WhereKernelsAndCopiesComeVeryLate) {
  DeviceBench all(deep_fixture(), on_cuda(kAll, 0));
  const Said want = play(all.bench(), 6);
  for (const uint32_t places : {1U, 2U, 4U}) {
    DeviceBenchOptions options = on_cuda(3, places);
    options.expects_all = true, options.predictor = "gate";
    const auto device = late_bench(deep_fixture(), options, 12);
    EXPECT_TRUE(play(device->bench(), 6) == want) << places;
  }
}

/// Blocks of the KV cache on their way to host memory and back at the same time.
TEST(CudaDenseTurns, WithBlocksThatMove) {
  for (const Fixture& fixture : one_of_each_gpu_layer()) {
    DeviceBenchOptions options = on_cuda(kAll, 0);
    options.engine.engine.context_max = 0, options.engine.engine.kv_tokens = 512;
    DeviceBench still(fixture, options);
    if (still.bench().engine().limits().visible.window > 0) continue;  // refused beside a window
    const auto want = engine::testing::decode_with_moves(still.bench(), fixture, 0);
    options.slots = 5, options.dense_places = 2;
    options.engine.engine.kv_host_tokens = engine::testing::kHostBlocksOfMoves * kernels::kKvBlockTokens;
    const auto moved = late_bench(fixture, options);
    EXPECT_EQ(engine::testing::decode_with_moves(moved->bench(), fixture, 1), want) << fixture.name;
  }
}

TEST(CudaDenseTurns, InEveryFormatOfWeightsAndStagedWhereRegistrationIsRefused) {
  static MoestroCudaFunctions staging = emulated::functions();
  staging.register_host = [](void*, uint64_t, int32_t) -> MoestroCudaResult { return 801; };
  for (const DType dtype : {DType::kBF16, DType::kInt8, DType::kInt4}) {
    DeviceBenchOptions options = on_cuda(kAll, 0);
    options.engine.experts = options.engine.dense = dtype;
    DeviceBench all(deep_fixture(), options);
    options.slots = 3, options.dense_places = 2, options.cuda = &staging;
    const auto device = late_bench(deep_fixture(), options);
    EXPECT_TRUE(play(device->bench(), 8) == play(all.bench(), 8)) << dtype_name(dtype);
    tier::TierFigures figures;
    device->device().take_figures(figures);
    EXPECT_GE(figures.staged_bytes, 10 * dense_bytes(*device));
  }
}

TEST(CudaDenseTurns, EachStepCopiesEachLayerOnce) {
  const auto device = late_bench(deep_fixture(), on_cuda(kAll, 2));
  const uint64_t bytes = dense_bytes(*device);
  ASSERT_GT(bytes, 0u);
  ASSERT_TRUE(step(*device, 1).is_ok());  // which has begun with copies for the second
  for (uint64_t id = 2; id <= 5; ++id) {
    const auto outcome = step(*device, id);
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
    EXPECT_EQ(outcome->dense_bytes, bytes);
    EXPECT_LE(outcome->dense_stall_us, outcome->stall_us);
  }
}

TEST(CudaDenseTurns, LateAndDamagedHostMemory) {
  DeviceBenchOptions options = on_cuda(5, 2);
  options.late_host = true, options.late.late_dense = true;
  const auto device = late_bench(deep_fixture(), options);
  DeviceBench all(deep_fixture(), on_cuda(kAll, 0));
  EXPECT_TRUE(play(device->bench(), 9) == play(all.bench(), 9)) << "nothing is at hand in host memory";
  // Found wrong since it was copied for the next step: it is copied again.
  for (const uint32_t blob : device->device().streamed()) {
    device->late_host()->find_wrong(blob);
    const auto outcome = step(*device, 900 + blob);
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
  }
}

/// The first layer is found wrong when the step has come to experts: what was queued has read it.
TEST(CudaDenseTurns, AStepThatMayHaveComputedWithWrongBytesFails) {
  DeviceBenchOptions options = on_cuda(2, 2);
  const store::Manifest* manifest = nullptr;
  std::optional<uint32_t> wrong;
  options.late_host = true;
  options.late.on_lease = [&](engine::testing::LateSource& host, uint32_t blob) {
    if (wrong && manifest->blobs[blob].kind == store::BlobKind::kExpert)
      host.find_wrong(*std::exchange(wrong, std::nullopt));
  };
  const auto device = late_bench(deep_fixture(), options);
  manifest = &device->device().manifest();
  ASSERT_TRUE(step(*device, 1).is_ok());
  wrong = device->device().streamed().front();
  const auto outcome = step(*device, 2);
  ASSERT_FALSE(wrong) << "an expert has been brought";
  ASSERT_FALSE(outcome.is_ok());
  EXPECT_EQ(outcome.status().code(), Code::kCorrupt);
  EXPECT_THAT(outcome.status().message(), HasSubstr("were found wrong in memory while a step computed with them"));
  EXPECT_TRUE(step(*device, 3).is_ok());
}

TEST(CudaDenseTurns, WhatCannotBeReadFailsTheStepByNameAndTheNextOneTriesAgain) {
  DeviceBenchOptions options = on_cuda(5, 2);
  options.late_host = true;
  const auto device = late_bench(deep_fixture(), options);
  ASSERT_TRUE(step(*device, 1).is_ok());
  const uint32_t blob = device->device().streamed().back();
  device->late_host()->break_blob(blob);
  int failed = 0;
  for (uint64_t id = 2; id < 5; ++id) {  // what was copied for it before may still do for one
    const auto outcome = step(*device, id);
    if (outcome.is_ok()) continue;
    ++failed;
    EXPECT_THAT(outcome.status().message(), HasSubstr("dense weights of layer "));
    EXPECT_THAT(outcome.status().message(), HasSubstr("blob " + std::to_string(blob)));
  }
  EXPECT_GE(failed, 2);
  device->late_host()->break_blob(std::nullopt);
  EXPECT_TRUE(step(*device, 9).is_ok());
  DeviceBench all(deep_fixture(), on_cuda(kAll, 0));
  EXPECT_TRUE(play(device->bench(), 4) == play(all.bench(), 4)) << "as if nothing had been";
}

/// A store that is gone: its steps fail, and those with the next one say what they said before.
TEST(CudaDenseTurns, AStoreThatIsLostInAStep) {
  DeviceBench all(deep_fixture(), on_cuda(kAll, 0));
  const Said want = play(all.bench(), 4);
  for (const int calls : {0, 3, 9}) {
    DeviceBenchOptions options = on_cuda(3, 2);
    options.late_host = true, options.late.late_dense = true;
    const auto device = late_bench(deep_fixture(), options);
    device->late_host()->lose_after(calls);
    int failed = 0;
    for (uint64_t id = 1; id <= 3; ++id) failed += step(*device, id).is_ok() ? 0 : 1;
    EXPECT_EQ(failed, 1) << calls;
    EXPECT_TRUE(play(device->bench(), 4) == want) << calls;
  }
}

/// Calls that copies need and that fail, at some time: the step fails with what was called, and nobody waits for ever.
TEST(CudaDenseTurns, ADeviceThatFails) {
  for (const char* name : {"copy_in", "stream_waits", "record_event", "query_event", "elapsed"})
    for (const int calls : {0, 7, 40, 300}) {
      static MoestroCudaFunctions table;
      table = emulated::functions();
      const auto failing = std::ranges::find(kFailingFunctions, std::string(name), [](const FailingFunction& f) {
        return std::string(f.name);
      });
      ASSERT_NE(failing, kFailingFunctions.end());
      DeviceBenchOptions options = on_cuda(5, 2);
      options.cuda = &table;
      DeviceBench device(deep_fixture(), options);
      failing->install(table, calls);
      Status status;
      for (uint64_t id = 1; id < 200 && status.is_ok(); ++id) status = step(device, id).status();
      EXPECT_FALSE(status.is_ok()) << name << " " << calls;
      EXPECT_THAT(status.message(), HasSubstr(name)) << calls;
    }
}

TEST(CudaDenseTurns, TheTimelineHasTheirCopiesAndStalls) {
  const auto device = late_bench(deep_fixture(), on_cuda(kAll, 2), 50);
  lanes::RecordedTimeline timeline;
  engine::Engine& engine = device->bench().engine();
  engine.set_timeline(&timeline);
  std::vector<int32_t> moe_layers;
  for (size_t l = 0; l < engine.spec().layers.size(); ++l)
    if (engine.spec().layers[l].moe_index) moe_layers.push_back(static_cast<int32_t>(l));
  device->foresight().set_timeline(&timeline, moe_layers);
  EXPECT_EQ(device->bench().greedy(deep_fixture().prompts("f32").front().ids, 6).size(), 6u);
  timeline.set_arrivals(nullptr);
  uint64_t bytes = 0;
  for (const lanes::Transfer& t : timeline.transfers()) {
    EXPECT_EQ(t.lane, lanes::Lane::kHostToDevice);
    if (t.expert < 0) bytes += t.bytes;
  }
  EXPECT_GE(bytes, 5 * dense_bytes(*device));
  const auto stalls = std::ranges::count_if(timeline.stalls(), [](const lanes::Stall& s) { return s.dense && s.link; });
  EXPECT_GT(stalls, 0);
}

}  // namespace
}  // namespace moestro::device::testing
