// A KV cache whose home is host memory never changes what the model says: bitwise the log-probabilities of the engine
// that has all of it where it computes. Every place that was saved, and every block that was never written, is NaN.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "services/worker/worker_device.h"
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

BenchOptions at_home(DType kv_dtype) {
  BenchOptions options;
  options.engine.kv_dtype = kv_dtype;
  options.engine.context_max = kContext;
  return options;
}

/// Room for the KV of three of the longest sequences, so that most steps are cut where the places are full.
DeviceBenchOptions moved(DType kv_dtype, int64_t resident_tokens = 0, int64_t micro_batches = 0) {
  DeviceBenchOptions options{.slots = 5, .engine = at_home(kv_dtype)};
  options.engine.engine.schedule = ScheduleKind::kExpertPipeline;
  options.engine.engine.kv_home = KvHome::kHost;
  options.engine.engine.kv_resident_tokens = resident_tokens;
  options.engine.engine.kv_ring_tokens = 3 * kContext;
  options.engine.engine.cut.count = micro_batches;
  return options;
}

/// The same where the host attends to what steps decode.
DeviceBenchOptions attended(DType kv_dtype, int64_t micro_batches = 0) {
  DeviceBenchOptions options = moved(kv_dtype, 0, micro_batches);
  options.engine.engine.schedule = ScheduleKind::kCgo;
  return options;
}

TEST(KvHome, SaysBitwiseTheSameForEveryFormatAndShare) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
    Bench resident(engine::testing::any_fixture(), at_home(dtype));
    const Said expected = play(resident, 5);
    EXPECT_GT(expected.scores.size(), 100u);
    for (const int64_t tokens : {0, 64, 800, 4096})
      for (const int64_t micro_batches : {0, 1, 3}) {
        DeviceBench device(engine::testing::any_fixture(), moved(dtype, tokens, micro_batches));
        EXPECT_TRUE(play(device.bench(), 5) == expected)
            << dtype_name(dtype) << ", " << tokens << " tokens stay, " << micro_batches << " micro-batches";
      }
    for (const int64_t micro_batches : {0, 1, 2, 3, 7}) {
      DeviceBench device(engine::testing::any_fixture(), attended(dtype, micro_batches));
      EXPECT_TRUE(play(device.bench(), 5) == expected)
          << dtype_name(dtype) << ", attended to by the host in " << micro_batches << " micro-batches";
    }
  }
}

TEST(KvHome, OfEveryModelWithSlowAndFastLinks) {
  for (const Fixture& fixture : engine::testing::fixtures()) {
    SCOPED_TRACE(fixture.name);
    if (fixture.has_states()) continue;
    Bench resident(fixture, at_home(DType::kF32));
    const Said expected = play(resident, 7);
    for (const uint64_t rate : {uint64_t{64} << 20, uint64_t{8} << 30}) {
      DeviceBenchOptions options = moved(DType::kF32, 0, 4);
      options.link_bytes_per_s = rate;
      options.predictor = "next-layer-all";
      DeviceBench device(fixture, options);
      EXPECT_TRUE(play(device.bench(), 7) == expected) << rate;
      if (fixture.has_latents()) continue;
      options.engine.engine.schedule = ScheduleKind::kCgo;
      DeviceBench beside_host(fixture, options);
      EXPECT_TRUE(play(beside_host.bench(), 7) == expected) << rate << ", attended to by the host";
    }
  }
}

TEST(KvHome, WithAWindowAndSinks) {
  BenchOptions plain = at_home(DType::kF32);
  plain.engine.visible = {.sinks = 3, .window = 20};
  DeviceBenchOptions options = moved(DType::kF32, 32, 2);
  options.engine.engine.visible = plain.engine.visible;
  options.engine.engine.kv_ring_tokens = 0;
  Bench resident(engine::testing::any_fixture(), std::move(plain));
  DeviceBench device(engine::testing::any_fixture(), options);
  EXPECT_TRUE(play(device.bench(), 9) == play(resident, 9));
}

TEST(KvHome, SequencesThatShareAPrefixShareItsBlocks) {
  const auto tails = [](Bench& bench) {
    std::vector<TokenId> prefix;
    for (TokenId t = 0; t < 32; ++t)
      prefix.push_back((t * 37 + 5) % static_cast<TokenId>(bench.engine().spec().vocab));
    bench.add(1, prefix);
    EXPECT_TRUE(bench.run().is_ok());
    for (const uint64_t id : {2, 3, 4})
      bench.add_behind(1, 2, id, {3, static_cast<TokenId>(id), 4}).score_targets = {1, 4, 1};
    bench.add(1, {9}).score_targets = {7};
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok());
    std::vector<uint32_t> scores;
    for (const auto& s : outcome->sequences)
      for (const auto& score : s.scores) scores.push_back(std::bit_cast<uint32_t>(score.logprob));
    return std::pair(scores, outcome->device);
  };
  Bench resident(engine::testing::any_fixture(), at_home(DType::kF32));
  DeviceBenchOptions options = moved(DType::kF32, 0, 1);
  options.engine.engine.kv_ring_tokens = 0;  // one micro-batch
  DeviceBench device(engine::testing::any_fixture(), options);
  const auto [scores, work] = tails(device.bench());
  EXPECT_EQ(scores, tails(resident).first);
  // The prefix once, for all four; back go the last block of each.
  int64_t block_bytes = 0;
  for (const auto& layer : device.bench().engine().spec().layers)
    block_bytes += kernels::kv_block_bytes({.heads = layer.attention.heads, .kv_heads = layer.attention.kv_heads,
                                            .head_dim = layer.attention.head_dim}, DType::kF32);
  EXPECT_EQ(work.kv_in_bytes, static_cast<uint64_t>(2 * block_bytes));
  EXPECT_EQ(work.kv_out_bytes, static_cast<uint64_t>(4 * block_bytes));
}

/// A link's time is what its bytes take, whoever's they are: the timeline's transfers of one direction do not overlap,
/// and have all bytes.
TEST(KvHome, SharesTheLinkWithTheExpertsAndIsDrawn) {
  DeviceBenchOptions options = moved(DType::kF32, 0, 3);
  options.link_bytes_per_s = uint64_t{32} << 20;
  DeviceBench device(engine::testing::any_fixture(), options);
  lanes::RecordedTimeline timeline;
  device.bench().engine().set_timeline(&timeline);
  std::vector<int32_t> layers;
  for (size_t l = 0; l < device.bench().engine().spec().layers.size(); ++l)
    if (device.bench().engine().spec().layers[l].moe_index) layers.push_back(static_cast<int32_t>(l));
  device.foresight().set_timeline(&timeline, layers);
  for (uint64_t id = 1; id <= 6; ++id) device.bench().add(id, std::vector<TokenId>(40, 3));
  ASSERT_TRUE(device.bench().run().is_ok());
  for (uint64_t id = 1; id <= 6; ++id) device.bench().add(id, {4}).sample = true;
  const auto outcome = device.bench().run();
  ASSERT_TRUE(outcome.is_ok());
  device.bench().engine().set_timeline(nullptr);
  EXPECT_GT(outcome->device.kv_in_bytes, 0u);
  uint64_t in = 0, out = 0;
  std::vector<lanes::Transfer> carried;
  for (const lanes::Transfer& t : timeline.transfers()) {
    if (t.expert < 0) (t.lane == lanes::Lane::kHostToDevice ? in : out) += t.bytes;
    if (t.lane == lanes::Lane::kHostToDevice) carried.push_back(t);
  }
  EXPECT_EQ(in, outcome->device.kv_in_bytes) << "the first step has nothing to load";
  EXPECT_GT(out, outcome->device.kv_out_bytes) << "of both steps";
  std::ranges::sort(carried, {}, &lanes::Transfer::begin);
  int of_experts = 0;
  for (size_t i = 1; i < carried.size(); ++i) {
    of_experts += carried[i].expert >= 0;
    if (carried[i - 1].expert < 0 && carried[i].expert < 0) EXPECT_LE(carried[i - 1].end, carried[i].begin);
  }
  EXPECT_GT(of_experts, 0);
  Nanos kv{0};
  for (const lanes::Transfer& t : carried)
    if (t.expert < 0) kv += t.end - t.begin;
  EXPECT_NEAR(static_cast<double>(kv.count()), static_cast<double>(in) * 1e9 / static_cast<double>(uint64_t{32} << 20),
              1000.0 * static_cast<double>(carried.size()));
}

/// Prompts, or first tokens alone: what the host attends to.
TEST(KvHome, AStepThatFailsAmidItsMovesLeavesNothingBehind) {
  Bench resident(engine::testing::any_fixture(), at_home(DType::kF32));
  const Said expected = play(resident, 3);
  for (const size_t tokens : {30, 1}) {
    int failed = 0;
    for (uint32_t seed = 1; seed <= 25; ++seed) {
      DeviceBenchOptions options = tokens == 1 ? attended(DType::kF32, 3) : moved(DType::kF32, 0, 3);
      options.late_host = true;
      options.late.seed = seed;
      DeviceBench device(engine::testing::any_fixture(), options);
      for (int step = 0; step < 3; ++step) {
        for (TokenId id = 1000; id < 1005; ++id)
          device.bench().add(static_cast<uint64_t>(id + 10 * step), std::vector<TokenId>(tokens, id % 7));
        device.late_host()->lose_after(static_cast<int>(seed) * 2 + step);
        failed += !device.bench().run().is_ok();
      }
      device.late_host()->lose_after(INT32_MAX);
      EXPECT_TRUE(play(device.bench(), 3) == expected) << seed;
    }
    EXPECT_GT(failed, 10) << tokens;
  }
}

/// As many tokens as sequences, and yet a prompt: the step needs places, and more than there are for both at once.
TEST(KvHome, AStepWithASequenceOfNoTokensIsCutWhereThePlacesAreFull) {
  const auto score = [](Bench& bench) {
    for (const uint64_t id : {1, 2}) {
      bench.add(id, std::vector<TokenId>(60, static_cast<TokenId>(id)));
      EXPECT_TRUE(bench.run().is_ok());
    }
    bench.add(1, {5, 6}).score_targets = {1, 2};
    bench.add(2, {7}).score_targets = {3};
    bench.add(3, {});
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    EXPECT_FALSE(outcome->sequences[2].status.is_ok());
    return std::pair(outcome->sequences[0].scores.at(1).logprob, outcome->sequences[1].scores.at(0).logprob);
  };
  Bench resident(engine::testing::any_fixture(), at_home(DType::kF32));
  DeviceBench device(engine::testing::any_fixture(), attended(DType::kF32));
  EXPECT_EQ(score(device.bench()), score(resident));
}

TEST(KvHome, AnExpertThatCannotBeReadFailsTheSequencesOfEachMicroBatchThatNeedsIt) {
  const auto errors = [](ScheduleKind schedule, uint32_t seed) {
    DeviceBenchOptions options = attended(DType::kF32, 4);
    options.engine.engine.schedule = schedule;
    options.late_host = true;
    const auto source = store::ResidentSource::open(
        engine::testing::packed(engine::testing::any_fixture(), DType::kF32, DType::kF32));
    options.late = {.seed = seed,
                    .broken_blob = *(*source)->manifest().expert_blob(MoeLayerId(1), ExpertId(seed % 3), DType::kF32)};
    DeviceBench device(engine::testing::any_fixture(), options);
    for (TokenId id = 1; id <= 16; ++id) device.bench().add(static_cast<uint64_t>(id), {3 * id}).sample = true;
    const auto outcome = device.bench().run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    std::vector<std::string> said;
    for (const auto& s : outcome->sequences)
      said.push_back(s.status.is_ok() ? std::to_string(s.sampled.front().id) : s.status.message());
    return said;
  };
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    const auto expected = errors(ScheduleKind::kExpertPipeline, seed);
    const auto failed = std::ranges::count_if(expected, [](const std::string& s) { return s.size() > 10; });
    EXPECT_GT(failed, 1);
    EXPECT_LT(failed, 16);
    EXPECT_EQ(errors(ScheduleKind::kCgo, seed), expected) << seed;
  }
}

/// Of a step that decodes, only what attention takes and gives crosses the link, beside experts; and the host attends
/// while the device computes.
TEST(KvHome, WhatTheHostAttendsToStaysThereAndIsDrawn) {
  DeviceBenchOptions options = attended(DType::kF32, 4);
  DeviceBench device(engine::testing::any_fixture(), options);
  const model::ModelSpec& spec = device.bench().engine().spec();
  for (uint64_t id = 1; id <= 8; ++id) device.bench().add(id, std::vector<TokenId>(40, 3));
  ASSERT_TRUE(device.bench().run().is_ok());
  lanes::RecordedTimeline timeline;
  device.bench().engine().set_timeline(&timeline);
  for (uint64_t id = 1; id <= 8; ++id) device.bench().add(id, {4}).sample = true;
  const auto outcome = device.bench().run();
  ASSERT_TRUE(outcome.is_ok());
  device.bench().engine().set_timeline(nullptr);
  EXPECT_EQ(outcome->device.kv_in_bytes, 0U);
  EXPECT_EQ(outcome->device.kv_out_bytes, 0U);
  uint64_t in = 0, out = 0, q = 0, kv = 0;
  for (const auto& layer : spec.layers) {
    q += static_cast<uint64_t>(layer.attention.heads * layer.attention.head_dim);
    kv += static_cast<uint64_t>(layer.attention.kv_heads * layer.attention.head_dim);
  }
  for (const lanes::Transfer& t : timeline.transfers())
    if (t.expert < 0) (t.lane == lanes::Lane::kHostToDevice ? in : out) += t.bytes;
  EXPECT_EQ(in, 8 * q * sizeof(float));
  EXPECT_EQ(out, 8 * (q + 2 * kv) * sizeof(float));
  std::map<lanes::TaskKind, size_t> slices;
  for (const lanes::Slice& s : timeline.slices()) {
    ++slices[s.task.kind];
    EXPECT_EQ(s.task.kind == lanes::TaskKind::kAttend, s.task.lane == lanes::Lane::kHostCompute);
  }
  for (const auto kind : {lanes::TaskKind::kQkv, lanes::TaskKind::kAttend, lanes::TaskKind::kOutput,
                          lanes::TaskKind::kRouter, lanes::TaskKind::kCombine})
    EXPECT_EQ(slices[kind], 4 * spec.layers.size()) << lanes::task_name(kind);
  EXPECT_EQ(slices[lanes::TaskKind::kAttention], 0U);
}

TEST(KvHome, IsRefusedWhereItDoesNotFit) {
  const auto refused = [](DeviceBenchOptions options, KvHome home,
                          const Fixture& fixture = engine::testing::any_fixture()) {
    const auto source = store::ResidentSource::open(engine::testing::packed(fixture, DType::kF32, DType::kF32));
    EXPECT_TRUE(source.is_ok());
    options.engine.engine.kv_home = home;
    const auto ops = kernels::make_cpu_ops({.threads = 1});
    const SteadyClock clock;
    struct NoLink final : engine::KvLink {
      void begin(lanes::TaskId, const lanes::Task&, int32_t, std::span<const engine::KvMove>) override {}
      void end_elsewhere(lanes::TaskId) override {}
      void take_ended(std::vector<lanes::TaskId>&) override {}
      void wait(std::chrono::milliseconds) override {}
      void abandon() override {}
      void take_carried(std::vector<engine::KvCarried>&) override {}
    } link;
    const auto made =
        engine::Engine::create(options.engine.engine, **source, engine::cpu_backend(*ops, &link), clock);
    EXPECT_FALSE(made.is_ok());
    return made.is_ok() ? std::string() : made.status().message();
  };
  const auto refused_by_device = [](const DeviceBenchOptions& options, const Fixture& fixture) {
    const auto source = store::ResidentSource::open(engine::testing::packed(fixture, DType::kF32, DType::kF32));
    EXPECT_TRUE(source.is_ok());
    const auto ops = kernels::make_cpu_ops({.threads = 1});
    const SteadyClock clock;
    const auto spec = config::parse_device("emulated:vram=1GiB,link=1GB/s");
    EXPECT_TRUE(spec.is_ok()) << spec.status().message();
    const auto made = WorkerDevice::create({.spec = *spec}, options.engine.engine, **source, *ops, nullptr, clock);
    EXPECT_FALSE(made.is_ok());
    return made.is_ok() ? std::string() : made.status().message();
  };
  DeviceBenchOptions layerwise = moved(DType::kF32);
  layerwise.engine.engine.schedule = ScheduleKind::kLayerwise;
  EXPECT_NE(refused(layerwise, KvHome::kHost).find("--schedule expert-pipeline"), std::string::npos);
  DeviceBenchOptions small = moved(DType::kF32);
  small.engine.engine.kv_ring_tokens = 2 * kContext;
  EXPECT_NE(refused(small, KvHome::kHost).find("take at least " + std::to_string(3 * kContext)), std::string::npos);
  for (const Fixture& fixture : engine::testing::fixtures()) {
    if (!fixture.has_states()) continue;
    const std::string said = refused(moved(DType::kF32), KvHome::kHost, fixture);
    EXPECT_NE(said.find("--kv-home host with layers of the gated delta rule"), std::string::npos) << said;
    EXPECT_EQ(refused_by_device(moved(DType::kF32), fixture), said) << "a worker asks its device first";
  }
  DeviceBenchOptions alone = attended(DType::kF32);
  EXPECT_NE(refused(alone, KvHome::kHost).find("--schedule cgo on this device, for which no host attends"),
            std::string::npos);
  DeviceBenchOptions evicted = moved(DType::kF32);
  evicted.engine.engine.kv_host_tokens = 64;
  EXPECT_NE(refused(evicted, KvHome::kHost).find("--kv-host-tokens with --kv-home host"), std::string::npos);
}

}  // namespace
}  // namespace moestro::device::testing
