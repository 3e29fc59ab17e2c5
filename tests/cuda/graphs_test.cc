// Decode steps as graphs: the same bits as without them whatever comes and goes, few calls, no waiting, and what
// becomes of refusals.

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <tuple>

#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/emulator/emulator.h"
#endif
#include "services/worker/cuda/cuda_graphs.h"
#include "tests/cuda/spied_functions.h"
#include "tests/device/device_bench.h"

namespace moestro::engine::testing {
namespace {

using device::testing::DeviceBench;
using device::testing::DeviceBenchOptions;
using kernels::test::Spied;
using kernels::test::spied;
using kernels::test::spied_functions;
constexpr int32_t kAll = 1 << 20;
#ifdef MOESTRO_CUDA_PLUGIN
void make_streams_late(int32_t) {}  // a device's are
#else
using kernels::cuda::emulated::make_streams_late;
#endif

const Fixture& fixture_named(const std::string& name) {
  static const std::vector<Fixture> all = fixtures();
  return *std::ranges::find(all, name, &Fixture::name);
}

DeviceBenchOptions on_cuda(int32_t slots, bool graphs) {
  return {.slots = slots, .cuda = &spied_functions(), .graphs = graphs};
}

/// What sequences that decode together have said: of each token its id and log-probability.
class Decoding {
 public:
  explicit Decoding(Bench& bench) : bench_(bench) {}
  /// A sequence joins with a prompt of its own; it decodes in every later step.
  void join(uint64_t id, size_t tokens) {
    for (size_t i = 0; i < tokens; ++i) next_[id].push_back(static_cast<TokenId>(3 + (id * 7 + i * 5) % 50));
  }
  void leave(uint64_t id) {
    next_.erase(id);
    bench_.release(id);
  }
  void steps(int count) {
    for (; count > 0; --count) step();
  }
  void step() {
    for (auto& [id, tokens] : next_) {
      PlanSequence& s = bench_.add(id, tokens);
      s.sample = true;
      s.sampling.logprobs = id % 2 == 0 ? -1 : 0;  // drawn on the device, and on the host
    }
    spied.mark();
    ASSERT_TRUE(bench_.run(out_).is_ok());
    size_t i = 0;
    for (auto& [id, tokens] : next_) {
      ASSERT_TRUE(out_.sequences[i].status.is_ok()) << out_.sequences[i].status.message();
      const auto& sampled = out_.sequences[i++].sampled.at(0);
      tokens.assign(1, sampled.id);
      said_.push_back({static_cast<double>(sampled.id), sampled.score.logprob});
    }
  }
  const std::vector<std::pair<double, double>>& said() const { return said_; }

 private:
  Bench& bench_;
  std::map<uint64_t, std::vector<TokenId>> next_;
  StepOutcome out_;
  std::vector<std::pair<double, double>> said_;
};

/// Tokens in the prompts of the first and the third sequence.
struct Prompts {
  size_t first, third;
};
#ifdef MOESTRO_CUDA_PLUGIN
constexpr Prompts kShort{122, 20};  // the first passes 128 positions on a device, which is quick
#else
constexpr Prompts kShort{20, 20};
#endif
/// The first passes 128 positions, the third 256: there launches are made for more parts.
constexpr Prompts kPassing{122, 200};

/// Sequences come and go.
std::vector<std::pair<double, double>> busy_service(const Fixture& fixture, const DeviceBenchOptions& options,
                                                    const Prompts& prompts) {
  DeviceBench device(fixture, options);
  Decoding decoding(device.bench());
  decoding.join(1, prompts.first);
  decoding.steps(10);
  decoding.join(2, 5);
  decoding.steps(6);
  decoding.join(3, prompts.third);
  decoding.steps(11);
  decoding.leave(1);
  decoding.steps(4);
  decoding.join(4, 17);
  decoding.join(6, 1);
  decoding.steps(5);
  decoding.leave(3);
  decoding.steps(4);
  return decoding.said();
}

class CudaGraphsTest : public kernels::test::CudaTest {
 protected:
  /// Graphs and none say the same, and there were some.
  static void expect_same(const Fixture& fixture, DeviceBenchOptions options, const std::string& what,
                          Prompts prompts = kPassing) {
    if (options.engine.engine.visible.window > 0) prompts.third = 250;
    options.graphs = false;
    const auto want = busy_service(fixture, options, prompts);
    EXPECT_EQ(spied.graphs, 0u) << what;
    options.graphs = true;
    spied = {};
    EXPECT_TRUE(busy_service(fixture, options, prompts) == want) << fixture.name << ", " << what;
    EXPECT_GT(spied.graphs, 20u) << fixture.name << ", " << what;
  }
};

TEST_F(CudaGraphsTest, ChangeNoBitWhereAllIsResident) {
  for (const auto& [name, prompts] : {std::pair("mixtral_window", kPassing),
                                      {"qwen2_moe_shared", kShort},
                                      {"gpt_oss_yarn", kShort},
                                      {"llama4_maverick", kShort},
                                      {"phimoe_short", kShort},
                                      {"qwen3_next_hybrid", kShort},
                                      {"deepseek_v3_yarn", kPassing}})
    expect_same(fixture_named(name), on_cuda(kAll, true), "all resident", prompts);
}

TEST_F(CudaGraphsTest, ChangeNoBitAmidMissesAndRewinds) {
  for (const auto& [name, prompts] : {std::pair("qwen2_moe_shared", kPassing),
                                      {"llama4_maverick", kShort},
                                      {"arctic_parallel", kShort},
                                      {"qwen3_next_types", kShort}}) {
    const Fixture& fixture = fixture_named(name);
    const auto want = busy_service(fixture, on_cuda(kAll, false), prompts);
    for (const auto& [slots, expects_all, predictor] :
         {std::tuple(3, false, "none"), {3, true, "none"}, {9, true, "gate"}}) {
      DeviceBenchOptions options = on_cuda(slots, true);
      options.expects_all = expects_all, options.predictor = predictor;
      EXPECT_TRUE(busy_service(fixture, options, prompts) == want)
          << name << ", " << slots << " slots, " << predictor << (expects_all ? ", queued ahead" : "");
      EXPECT_GT(spied.graphs, 20u);
    }
  }
}

TEST_F(CudaGraphsTest, ChangeNoBitWithCachesWindowsAndSinksOfAnyKind) {
  const Fixture& fixture = fixture_named("qwen3_moe_sharded");
  for (const auto& [kv, visible] :
       {std::pair(DType::kBF16, VisiblePositions{}), {DType::kInt8, {.sinks = 4, .window = 60}}}) {
    DeviceBenchOptions options = on_cuda(kAll, true);
    options.engine.engine.kv_dtype = kv;
    options.engine.engine.visible = visible;
    expect_same(fixture, options, std::string(dtype_name(kv)) + ", " + std::to_string(visible.sinks) + " sinks");
  }
}

TEST_F(CudaGraphsTest, ChangeNoBitOfTheFastKernels) {
  for (const auto& [name, prompts] :
       {std::pair("mixtral_llama3", kShort), {"gpt_oss_yarn", kPassing}, {"deepseek_v3_yarn", kPassing}}) {
    DeviceBenchOptions options = on_cuda(kAll, true);
    options.engine.deterministic = false;
    options.copies_seem_slow = false;
    options.engine.experts = options.engine.dense = DType::kBF16;
    expect_same(fixture_named(name), options, "not deterministic", prompts);
  }
}

/// A layer that takes turns has another place each time where their number is odd: a graph for each.
TEST_F(CudaGraphsTest, ChangeNoBitWhereDenseWeightsTakeTurns) {
  for (const auto& [name, places, half] : {std::tuple("qwen2_moe_shared", 2U, false),
                                           {"ernie4_5_moe_interval", 2U, true},
                                           {"qwen3_next_hybrid", 3U, false},
                                           {"deepseek_v3_yarn", 2U, false}}) {
    DeviceBenchOptions options = on_cuda(kAll, false);
    const auto want = busy_service(fixture_named(name), options, kShort);
    options.dense_places = places, options.half_of_dense = half, options.graphs = true;
    spied = {};
    EXPECT_TRUE(busy_service(fixture_named(name), options, kShort) == want) << name;
    EXPECT_GT(spied.graphs, 20u) << name;
  }
}

/// As where all dense weights stay, and no more is captured once each place has been seen.
TEST_F(CudaGraphsTest, AStepInTurnIsALaunchALayer) {
  // The second has four layers: each has another place in the next step.
  for (const auto& [name, places] : {std::pair("qwen2_moe_shared", 2U), {"ernie4_5_moe_interval", 3U}}) {
    DeviceBenchOptions options = on_cuda(kAll, true);
    options.dense_places = places;
    DeviceBench device(fixture_named(name), options);
    const auto layers = static_cast<uint64_t>(device.bench().engine().spec().moe_layers());
    ASSERT_EQ(device.device().streamed().size(), device.bench().engine().spec().layers.size());
    Decoding decoding(device.bench());
    for (uint64_t id = 1; id <= 4; ++id) decoding.join(2 * id, 3);
    for (int i = 0; i < 100 && !device.device().holds_all(); ++i) decoding.step();
    ASSERT_TRUE(device.device().holds_all());
    decoding.steps(3 * static_cast<int>(places));
    const Spied before = spied;
    for (int i = 0; i < 3; ++i) decoding.step();
    EXPECT_EQ(spied.graphs - before.graphs, 3 * (layers + 1)) << name;
    EXPECT_LE(spied.operations - before.operations, 3 * 5u) << name;
    EXPECT_EQ(spied.captures, before.captures) << name;
    EXPECT_EQ(spied.allocations, before.allocations) << name;
  }
}

/// Four sequences that decode on a device that holds everything, warm; its streams are late, so that whoever waits
/// waits indeed.
class ResidentTest : public CudaGraphsTest {
 protected:
  void SetUp() override {
    CudaGraphsTest::SetUp();
    if (IsSkipped()) return;
    make_streams_late(100);
    device_.emplace(fixture_named("qwen2_moe_shared"), on_cuda(kAll, true));
    make_streams_late(0);
    decoding_.emplace(device_->bench());
    for (uint64_t id = 1; id <= 4; ++id) decoding_->join(2 * id, 3);  // even: drawn on the device
    decoding_->step();
    EXPECT_GT(spied.work_behind_waits, 0u) << "where experts are missing the host has to wait";
    for (int i = 0; i < 100 && !device_->device().holds_all(); ++i) decoding_->step();
    decoding_->steps(5);
    ASSERT_TRUE(device_->device().holds_all());
  }
  std::optional<DeviceBench> device_;
  std::optional<Decoding> decoding_;
};

TEST_F(ResidentTest, AStepIsALaunchALayerAndAFewMore) {
  const Spied before = spied;
  decoding_->step();
  EXPECT_EQ(spied.graphs - before.graphs, static_cast<uint64_t>(device_->bench().engine().spec().moe_layers()) + 1)
      << "a dense layer goes with the one before it";
  EXPECT_LE(spied.operations - before.operations, 5u) << "the table of tokens, and from the last rows to ids";
  EXPECT_EQ(spied.captures, before.captures);
  EXPECT_EQ(spied.allocations, before.allocations);
  EXPECT_LE(spied.copies_in - before.copies_in, 5u) << "tokens, angles, queries; no table of experts";
}

#ifndef MOESTRO_CUDA_PLUGIN
/// Of a step in which four sequences decode, drawn on the device, one of them with a prompt of so many tokens; and the
/// model's layers.
std::pair<uint64_t, uint64_t> kernels_and_layers(const char* fixture, size_t longest) {
  DeviceBench device(fixture_named(fixture), on_cuda(kAll, true));
  Decoding decoding(device.bench());
  for (uint64_t id = 1; id <= 4; ++id) decoding.join(2 * id, id == 4 ? longest : 5);
  decoding.step();
  for (int i = 0; i < 100 && !device.device().holds_all(); ++i) decoding.step();
  decoding.steps(3);
  const uint64_t before = kernels::cuda::emulated::counters().launches;
  decoding.step();
  return {kernels::cuda::emulated::counters().launches - before, device.bench().engine().spec().layers.size()};
}

/// What a card spends between kernels that wait for one another is most of what a layer costs beside its weights.
TEST_F(CudaGraphsTest, ALayerThatDecodesIsEightKernelsAndNineOfLongSequences) {
  // The table of tokens, the first norm, the head's product, and its choice in two.
  constexpr uint64_t kEnds = 5;
  for (const char* name : {"mixtral_window", "qwen3_moe_dynamic"}) {
    const auto [kernels, layers] = kernels_and_layers(name, 5);
    EXPECT_LE(kernels, 8 * layers + kEnds) << name;
  }
  const auto [kernels, layers] = kernels_and_layers("mixtral_window", 130);
  EXPECT_LE(kernels, 9 * layers + kEnds);
  // Six of the gated delta rule, or five of attention with its gate; four of the shared expert; four of what all have.
  const auto [of_hybrid, hybrid_layers] = kernels_and_layers("qwen3_5_moe_text", 5);
  EXPECT_LE(of_hybrid, 14 * hybrid_layers + kEnds);
}

/// Latents of queries and of keys and values, the former's norm, queries, writing; absorbing, attending and expanding;
/// the output: eight. Then a norm and an MLP of four, or routes, a shared expert of three, experts of two, their sum.
TEST_F(CudaGraphsTest, ALayerOfLatentAttentionThatDecodesIsFifteenKernels) {
  constexpr uint64_t kEnds = 5, kDense = 13, kSparse = 15;
  const auto [kernels, layers] = kernels_and_layers("deepseek_v3_kimi_k2", 5);
  ASSERT_EQ(layers, 2u);
  EXPECT_LE(kernels, kDense + kSparse + kEnds);
  EXPECT_LE(kernels_and_layers("deepseek_v3_kimi_k2", 130).first, kDense + kSparse + layers + kEnds);
}
#endif

TEST_F(ResidentTest, NothingOfAStepIsQueuedByAHostThatHasWaitedForIt) {
  for (int i = 0; i < 5; ++i) {
    const uint64_t waits = spied.waits;
    decoding_->step();
    EXPECT_EQ(spied.work_behind_waits, 0u);
    EXPECT_GE(spied.waits, waits + 1) << "the step's end, at least";
  }
}

struct Refusal {
  const char* what;
  MoestroCudaResult Spied::*of;
};

TEST_F(CudaGraphsTest, ARefusedCaptureOrLaunchLeavesStepsRight) {
  const Fixture& fixture = fixture_named("qwen2_moe_shared");
  const auto want = busy_service(fixture, on_cuda(kAll, false), kShort);
  for (const auto& [what, of] : {Refusal{"begin_capture", &Spied::begin_capture},
                                 {"end_capture", &Spied::end_capture},
                                 {"launch_graph", &Spied::launch_graph},
                                 {"an operation", &Spied::in_capture}}) {
    const DeviceBenchOptions options = on_cuda(kAll, true);
    spied.*of = 2;
    EXPECT_TRUE(busy_service(fixture, options, kShort) == want) << what;
    EXPECT_LE(spied.captures, 1u) << what << ": it is not tried again";
    EXPECT_EQ(spied.graphs, 0u) << what;
  }
}

// --- the cache alone ---

class GraphCacheTest : public kernels::test::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) ASSERT_EQ(queue_.functions.make_stream(0, &queue_.stream), 0);
  }
  /// What comes of a launch for rows `n` where it has to be queued if it is not a graph: "queued" or "graph".
  std::string launch(cuda::CudaGraphs& graphs, int32_t n) {
    return graphs.launch({.step = {.rows = n}, .segment = 0}, [] {}) ? "graph" : "queued";
  }

  kernels::cuda::DeviceQueue queue_{spied_functions()};
};

TEST_F(GraphCacheTest, CapturesWhatIsSeenTwiceAndForgetsWhatIsOldest) {
  cuda::CudaGraphs graphs(queue_, true, 2);
  EXPECT_EQ(launch(graphs, 1), "queued");
  EXPECT_EQ(launch(graphs, 1), "graph");
  EXPECT_EQ(launch(graphs, 2), "queued");
  EXPECT_EQ(launch(graphs, 1), "graph");
  EXPECT_EQ(graphs.counts().captured, 1u);
  EXPECT_EQ(launch(graphs, 3), "queued") << "in the place of 2";
  EXPECT_EQ(launch(graphs, 1), "graph");
  EXPECT_EQ(launch(graphs, 2), "queued") << "in the place of 3";
  EXPECT_EQ(launch(graphs, 3), "queued") << "in the place of 1";
  EXPECT_EQ(spied.graphs_ended, 1u);
  EXPECT_EQ(launch(graphs, 3), "graph");
  EXPECT_EQ(launch(graphs, 1), "queued");
  EXPECT_EQ(graphs.counts().given_way, 4u);
  EXPECT_EQ(graphs.counts().captured, 2u);
  EXPECT_EQ(graphs.counts().launched, 4u);
}

TEST_F(GraphCacheTest, ForgetsAllWhenMemoryThatGraphsReadHasMoved) {
  cuda::CudaGraphs graphs(queue_, true);
  for (const char* want : {"queued", "graph"}) EXPECT_EQ(launch(graphs, 1), want);
  kernels::cuda::Workspace workspace(queue_);
  ASSERT_NE(workspace.at_least(10), nullptr);
  for (const char* want : {"queued", "graph"}) EXPECT_EQ(launch(graphs, 1), want);
  EXPECT_EQ(spied.graphs_ended, 1u);
}

TEST_F(GraphCacheTest, LaunchesNoneWhereTheyAreOffOrTheQueueHasFailed) {
  cuda::CudaGraphs off(queue_, false);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(launch(off, 1), "queued");
  cuda::CudaGraphs graphs(queue_, true);
  for (const char* want : {"queued", "graph"}) EXPECT_EQ(launch(graphs, 1), want);
  queue_.error = 999;
  EXPECT_EQ(launch(graphs, 1), "queued");
  EXPECT_TRUE(graphs.are_on()) << "that is no fault of graphs";
  queue_.error = 0;
}

}  // namespace
}  // namespace moestro::engine::testing
