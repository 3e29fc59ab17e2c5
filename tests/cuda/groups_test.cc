// The expert pipeline on a CUDA device, with the KV cache there or at home in host memory, never changes what the model
// says: bitwise what the same device says layer by layer. A host that attends sums in another order than the device:
// near that, and bitwise the same in any cut and at any speed. Copies and kernels happen as late as they may; places of
// KV and slots of experts are NaN where nothing has come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "tests/cuda/cuda_under_test.h"
#include "tests/device/device_bench.h"
#include "tests/device/played_steps.h"
#include "tests/engine/moved_blocks.h"
#include "tests/lanes/recorded_timeline.h"
#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/emulator/streams.h"
#include "tests/device/failing_functions.h"
#endif

namespace moestro::device::testing {
namespace {

using engine::KvHome;
using engine::ScheduleKind;
using engine::testing::Fixture;
using ::testing::HasSubstr;

constexpr int32_t kAllSlots = 1 << 20;

DeviceBenchOptions layerwise(DType kv_dtype = DType::kF32) {
  DeviceBenchOptions options{.slots = kAllSlots, .cuda = &kernels::test::functions_under_test()};
  options.engine.engine.context_max = kContext;
  options.engine.engine.kv_dtype = kv_dtype;
  return options;
}

DeviceBenchOptions groups(int64_t micro_batches, int32_t slots = 5, DType kv_dtype = DType::kF32) {
  DeviceBenchOptions options = layerwise(kv_dtype);
  options.slots = slots;
  options.chunk_bytes = 4096;
  options.engine.engine.schedule = ScheduleKind::kExpertPipeline;
  options.engine.engine.cut.count = micro_batches;
  return options;
}

/// Room on the device for the KV of three of the longest sequences.
DeviceBenchOptions moved(int64_t micro_batches, int64_t resident_tokens = 0, DType kv_dtype = DType::kF32) {
  DeviceBenchOptions options = groups(micro_batches, 5, kv_dtype);
  options.engine.engine.kv_home = KvHome::kHost;
  options.engine.engine.kv_resident_tokens = resident_tokens;
  options.engine.engine.kv_ring_tokens = 3 * kContext;
  return options;
}

/// The same where the host attends to what steps decode.
DeviceBenchOptions attended(int64_t micro_batches, DType kv_dtype = DType::kF32) {
  DeviceBenchOptions options = moved(micro_batches, 0, kv_dtype);
  options.engine.engine.schedule = ScheduleKind::kCgo;
  return options;
}

/// On a real device copies and kernels come when they come.
std::unique_ptr<DeviceBench> late_bench(const Fixture& fixture, const DeviceBenchOptions& options,
                                        [[maybe_unused]] int32_t late = 3) {
#ifndef MOESTRO_CUDA_PLUGIN
  kernels::cuda::emulated::make_streams_late(late);
#endif
  auto device = std::make_unique<DeviceBench>(fixture, options);
#ifndef MOESTRO_CUDA_PLUGIN
  kernels::cuda::emulated::make_streams_late(0);
#endif
  return device;
}

class CudaGroups : public ::testing::Test {
  void SetUp() override { SKIP_WITHOUT(kernels::Isa::kScalar); }
};

void expect_near(const Said& said, const Said& want, float most) {
  ASSERT_EQ(said.scores.size(), want.scores.size());
  for (size_t i = 0; i < want.scores.size(); ++i)
    ASSERT_NEAR(std::bit_cast<float>(said.scores[i]), std::bit_cast<float>(want.scores[i]), most) << i;
}

/// And learned sinks, which lie with the weights on the device.
std::vector<Fixture> one_of_each() {
  std::vector<Fixture> all = one_of_each_gpu_layer();
  for (const Fixture& fixture : engine::testing::fixtures())
    if (fixture.name == "gpt_oss_yarn") all.push_back(fixture);
  EXPECT_EQ(all.size(), one_of_each_gpu_layer().size() + 1);
  return all;
}

TEST_F(CudaGroups, EveryKindOfLayerSaysBitwiseTheSame) {
  for (const Fixture& fixture : one_of_each()) {
    SCOPED_TRACE(fixture.name);
    DeviceBench device(fixture, layerwise());
    const Said want = play_few(device.bench(), 5);
    EXPECT_GT(want.scores.size(), 100U);
    for (const auto& [micro_batches, slots] : {std::pair(3, 4), {4, kAllSlots}}) {
      DeviceBenchOptions options = groups(micro_batches, slots);
      options.predictor = "gate";
      EXPECT_TRUE(play_few(late_bench(fixture, options)->bench(), 5) == want)
          << micro_batches << ", " << slots << " slots";
    }
    if (fixture.has_states()) continue;  // which stay on the device
    DeviceBenchOptions options = moved(3);
    options.predictor = "next-layer-all";
    EXPECT_TRUE(play_few(late_bench(fixture, options)->bench(), 5) == want) << "KV in host memory";
    if (fixture.has_latents()) continue;  // to which no host attends
    options.engine.engine.schedule = ScheduleKind::kCgo;
    const Said attended = play_few(late_bench(fixture, options)->bench(), 5);
    expect_near(attended, want, 1e-3F);
    options.engine.engine.cut.count = 1, options.slots = kAllSlots;
    EXPECT_TRUE(play_few(late_bench(fixture, options, 0)->bench(), 5) == attended) << "attended to by the host";
  }
}

TEST_F(CudaGroups, WithKvOfEveryFormatAndShareInHostMemory) {
  const Fixture& fixture = engine::testing::any_fixture();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
    DeviceBench device(fixture, layerwise(dtype));
    const Said want = play_few(device.bench(), 6);
    for (const auto& [tokens, micro_batches] : {std::pair(0, 0), {0, 3}, {64, 1}, {800, 4}, {4096, 3}})
      EXPECT_TRUE(play_few(late_bench(fixture, moved(micro_batches, tokens, dtype))->bench(), 6) == want)
          << dtype_name(dtype) << ", " << tokens << " tokens stay, " << micro_batches << " micro-batches";
    // A number next to the middle of two roundings of the cache may be rounded either way.
    const Said by_host = play_few(late_bench(fixture, attended(0, dtype))->bench(), 6);
    expect_near(by_host, want, dtype == DType::kF32 ? 1e-3F : 2e-2F);
    EXPECT_TRUE(play_few(late_bench(fixture, attended(3, dtype))->bench(), 6) == by_host)
        << dtype_name(dtype) << ", attended to by the host";
  }
}

/// A layer without experts has no router whose choice the host waits for.
TEST_F(CudaGroups, WhereKernelsAndCopiesComeVeryLate) {
  DeviceBench device(deep_fixture(), layerwise());
  const Said want = play(device.bench(), 8);
  for (const int64_t micro_batches : {2, 5}) {
    DeviceBenchOptions options = moved(micro_batches);
    options.slots = 3;
    EXPECT_TRUE(play(late_bench(deep_fixture(), options, 12)->bench(), 8) == want) << micro_batches;
    options.engine.engine.schedule = ScheduleKind::kCgo;
    expect_near(play(late_bench(deep_fixture(), options, 12)->bench(), 8), want, 1e-3F);
  }
}

TEST_F(CudaGroups, WithAWindowAndSinks) {
  DeviceBenchOptions still = layerwise(), options = moved(2, 32);
  still.engine.engine.visible = options.engine.engine.visible = {.sinks = 3, .window = 20};
  options.engine.engine.kv_ring_tokens = 0;
  DeviceBench device(engine::testing::any_fixture(), still);
  EXPECT_TRUE(play(late_bench(engine::testing::any_fixture(), options)->bench(), 9) == play(device.bench(), 9));
}

TEST_F(CudaGroups, DenseWeightsThatTakeTurnsBesideThem) {
  DeviceBench all(deep_fixture(), layerwise());
  const Said want = play(all.bench(), 6);
  for (const auto& [places, half] : {std::pair(1U, false), {2U, false}, {2U, true}}) {
    DeviceBenchOptions options = moved(3);
    options.dense_places = places, options.half_of_dense = half;
    EXPECT_TRUE(play(late_bench(deep_fixture(), options)->bench(), 6) == want) << places << " places";
  }
}

TEST_F(CudaGroups, InEveryFormatOfWeightsAndFastKernelsToo) {
  for (const DType dtype : {DType::kBF16, DType::kInt8, DType::kInt4}) {
    DeviceBenchOptions still = layerwise(), options = moved(3);
    still.engine.experts = options.engine.experts = dtype;
    still.engine.dense = options.engine.dense = dtype;
    DeviceBench device(engine::testing::any_fixture(), still);
    EXPECT_TRUE(play(late_bench(engine::testing::any_fixture(), options)->bench(), 3) == play(device.bench(), 3))
        << dtype_name(dtype);
  }
}

/// Of what each part is worth by itself, nothing is said.
TEST_F(CudaGroups, WithoutEachOfItsParts) {
  DeviceBench device(engine::testing::any_fixture(), layerwise());
  const Said want = play(device.bench(), 4);
  for (const engine::PipelineParts parts :
       {engine::PipelineParts{.hot_first = false}, {.by_expert = false}, {.release_early = false}}) {
    DeviceBenchOptions options = moved(3);
    options.slots = 8;
    options.engine.engine.parts = parts;
    EXPECT_TRUE(play(late_bench(engine::testing::any_fixture(), options)->bench(), 4) == want);
  }
}

/// Copies between blocks before a step, of every kind: within the device's memory, within the host's, in and out.
TEST_F(CudaGroups, BlocksThatAreCopiedBetweenSteps) {
  const auto tails = [](DeviceBench& device) {
    engine::testing::Bench& bench = device.bench();
    const auto vocab = static_cast<TokenId>(bench.engine().spec().vocab);
    std::vector<TokenId> prefix;
    for (TokenId t = 0; t < 48; ++t) prefix.push_back((t * 37 + 5) % vocab);
    bench.add(1, prefix);
    EXPECT_TRUE(bench.run().is_ok());
    bench.add(2, std::vector<TokenId>(40, 7));
    EXPECT_TRUE(bench.run().is_ok());
    std::vector<uint32_t> scores;
    // What the first has written goes over the second's blocks, three at a time and crosswise.
    const std::vector<uint32_t> from = bench.table(1), to = bench.table(2);
    for (size_t i = 0; i < 3; ++i) bench.plan().kv_copies.push_back({from[i], to[2 - i]});
    bench.plan().kv_copies.push_back({to[0], from[2]});
    bench.add(1, {3}).score_targets = {1};
    bench.add(2, {4}).score_targets = {1};
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    if (!outcome.is_ok()) return scores;
    for (const auto& s : outcome->sequences)
      for (const auto& score : s.scores) scores.push_back(std::bit_cast<uint32_t>(score.logprob));
    return scores;
  };
  DeviceBench still(engine::testing::any_fixture(), layerwise());
  const auto want = tails(still);
  EXPECT_EQ(want.size(), 2U);
  for (const int64_t resident : {0, 16, 32, 64, 4096}) {
    const auto device = late_bench(engine::testing::any_fixture(), moved(2, resident));
    EXPECT_EQ(tails(*device), want) << resident;
  }
}

TEST_F(CudaGroups, BlocksThatMoveWhereTheCacheIsOnTheDevice) {
  const Fixture& fixture = engine::testing::any_fixture();
  DeviceBenchOptions options = layerwise();
  options.engine.engine.context_max = 0, options.engine.engine.kv_tokens = 512;
  DeviceBench still(fixture, options);
  const auto want = engine::testing::decode_with_moves(still.bench(), fixture, 0);
  options = groups(2);
  options.engine.engine.context_max = 0, options.engine.engine.kv_tokens = 512;
  options.engine.engine.kv_host_tokens = engine::testing::kHostBlocksOfMoves * kernels::kKvBlockTokens;
  EXPECT_EQ(engine::testing::decode_with_moves(late_bench(fixture, options)->bench(), fixture, 1), want);
}

/// Prompts in pieces need logits of their last token alone. Pinned memory is what it was: zeros, of a new process.
TEST_F(CudaGroups, StepsWithoutLogitsHaveTheirOwnErrors) {
  static MoestroCudaFunctions zeroed;
  zeroed = kernels::test::functions_under_test();
  zeroed.allocate_pinned = [](uint64_t bytes, void** host) -> MoestroCudaResult {
    const MoestroCudaResult result = kernels::test::functions_under_test().allocate_pinned(bytes, host);
    if (result == 0) std::memset(*host, 0, bytes);
    return result;
  };
  for (DeviceBenchOptions options : {groups(2), moved(2), attended(2)}) {
    options.cuda = &zeroed;
    DeviceBench device(engine::testing::any_fixture(), options);
    for (const size_t tokens : {3, 5, 1}) {
      for (const uint64_t id : {1, 2}) device.bench().add(id, std::vector<TokenId>(tokens, 5));
      const auto outcome = device.bench().run();
      ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
      for (const auto& s : outcome->sequences) EXPECT_TRUE(s.status.is_ok()) << s.status.message();
    }
  }
}

TEST_F(CudaGroups, AnExpertIsCopiedOnceForAllMicroBatches) {
  const auto device = late_bench(engine::testing::any_fixture(), groups(6, 2));
  const model::ModelSpec& spec = device->bench().engine().spec();
  for (uint64_t id = 1; id <= 24; ++id) device->bench().add(id, {static_cast<TokenId>(3 * id), 5}).sample = true;
  const auto outcome = device->bench().run();
  ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
  EXPECT_LE(device->device().tier_counters().moved_bytes,
            static_cast<uint64_t>(spec.moe_layers() * spec.moe().experts) * device->device().slot_bytes());
}

TEST_F(CudaGroups, AnExpertThatCannotBeReadFailsTheSequencesThatNeedIt) {
  const auto errors = [](DeviceBenchOptions options, uint32_t seed) {
    options.late_host = true;
    const auto source = store::ResidentSource::open(
        engine::testing::packed(engine::testing::any_fixture(), DType::kF32, DType::kF32));
    options.late = {.seed = seed,
                    .broken_blob = *(*source)->manifest().expert_blob(MoeLayerId(1), ExpertId(seed % 3), DType::kF32)};
    const auto device = late_bench(engine::testing::any_fixture(), options);
    for (TokenId id = 1; id <= 16; ++id) device->bench().add(static_cast<uint64_t>(id), {3 * id}).sample = true;
    const auto outcome = device->bench().run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    std::vector<std::string> said;
    for (const auto& s : outcome->sequences)
      said.push_back(s.status.is_ok() ? std::to_string(s.sampled.front().id) : s.status.message());
    return said;
  };
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    DeviceBenchOptions still = layerwise();
    still.slots = 5;
    const auto want = errors(still, seed);
    const auto failed = std::ranges::count_if(want, [](const std::string& s) { return s.size() > 10; });
    EXPECT_GT(failed, 1);
    EXPECT_LT(failed, 16);
    EXPECT_EQ(errors(moved(4), seed), want) << seed;
    EXPECT_EQ(errors(attended(4), seed), want) << seed << ", attended to by the host";
  }
}

TEST_F(CudaGroups, AStoreThatIsLostInAStepLeavesNothingBehind) {
  const Said still = play(DeviceBench(engine::testing::any_fixture(), layerwise()).bench(), 3);
  const Said by_host = play(DeviceBench(engine::testing::any_fixture(), attended(2)).bench(), 3);
  int failed = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    const bool decodes = seed % 2 == 0;
    DeviceBenchOptions options = decodes ? attended(3) : moved(3);
    options.late_host = true, options.late.seed = seed;
    const auto device = late_bench(engine::testing::any_fixture(), options);
    for (int step = 0; step < 3; ++step) {
      for (TokenId id = 1000; id < 1005; ++id)
        device->bench().add(static_cast<uint64_t>(id + 10 * step), std::vector<TokenId>(decodes ? 1 : 30, id % 7));
      device->late_host()->lose_after(static_cast<int>(seed) * 2 + step);
      failed += !device->bench().run().is_ok();
    }
    device->late_host()->lose_after(INT32_MAX);
    EXPECT_TRUE(play(device->bench(), 3) == (decodes ? by_host : still)) << seed;
  }
  EXPECT_GT(failed, 4);
}

#ifndef MOESTRO_CUDA_PLUGIN
/// Calls that copies need and that fail, at some time: the step fails with what was called, and nobody waits for ever.
TEST_F(CudaGroups, ADeviceThatFails) {
  for (const char* name : {"copy_in", "copy_out", "record_event", "query_event", "elapsed", "wait_event"})
    for (const int calls : {0, 9, 80, 400}) {
      static MoestroCudaFunctions table;
      table = kernels::test::functions_under_test();
      const auto failing = std::ranges::find(kFailingFunctions, std::string(name), [](const FailingFunction& f) {
        return std::string(f.name);
      });
      ASSERT_NE(failing, kFailingFunctions.end()) << name;
      DeviceBenchOptions options = calls % 2 == 0 ? moved(2) : attended(2);
      options.cuda = &table;
      DeviceBench device(engine::testing::any_fixture(), options);
      failing->install(table, calls);
      Status status;
      for (uint64_t id = 1; id < 200 && status.is_ok(); ++id) {
        for (const uint64_t of : {id, id + 1000}) device.bench().add(of, {5, 6, 7}).sample = true;
        status = device.bench().run().status();
        for (const uint64_t of : {id, id + 1000}) device.bench().add(of, {5}).sample = true;
        if (status.is_ok()) status = device.bench().run().status();
        for (const uint64_t of : {id, id + 1000}) device.bench().release(of);
      }
      EXPECT_FALSE(status.is_ok()) << name << " " << calls;
      EXPECT_THAT(status.message(), HasSubstr(name)) << calls;
    }
}
#endif

TEST_F(CudaGroups, TheTimelineHasMicroBatchesAndTheKvThatMoves) {
  const auto device = late_bench(engine::testing::any_fixture(), moved(3));
  engine::Engine& engine = device->bench().engine();
  for (uint64_t id = 1; id <= 6; ++id) device->bench().add(id, std::vector<TokenId>(20, 3));
  ASSERT_TRUE(device->bench().run().is_ok());
  lanes::RecordedTimeline timeline;
  engine.set_timeline(&timeline);
  for (uint64_t id = 1; id <= 6; ++id) device->bench().add(id, {4}).sample = true;
  const auto outcome = device->bench().run();
  ASSERT_TRUE(outcome.is_ok());
  engine.set_timeline(nullptr);
  uint64_t in = 0, out = 0;
  for (const lanes::Transfer& t : timeline.transfers()) {
    EXPECT_LE(t.begin, t.end);
    if (t.expert < 0) (t.lane == lanes::Lane::kHostToDevice ? in : out) += t.bytes;
  }
  EXPECT_EQ(in, outcome->device.kv_in_bytes);
  EXPECT_EQ(out, outcome->device.kv_out_bytes);
  EXPECT_GT(in, out);
  std::map<std::pair<lanes::TaskKind, int32_t>, size_t> slices;
  for (const lanes::Slice& s : timeline.slices()) ++slices[{s.task.kind, s.task.micro_batch}];
  for (const int32_t micro_batch : {0, 1, 2}) {
    EXPECT_EQ((slices[{lanes::TaskKind::kAttention, micro_batch}]), engine.spec().layers.size());
    EXPECT_EQ((slices[{lanes::TaskKind::kRouter, micro_batch}]), static_cast<size_t>(engine.spec().moe_layers()));
  }
  EXPECT_EQ((slices[{lanes::TaskKind::kCombine, lanes::kAllMicroBatches}]),
            static_cast<size_t>(engine.spec().moe_layers()));
}

}  // namespace
}  // namespace moestro::device::testing
