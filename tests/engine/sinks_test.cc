// Windows and attention sinks. For a model of one layer the reference is simple: keys and values depend on a token and
// its position alone, so what a far query computes is what the plain engine computes for a short sequence of the sinks
// and the window.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "services/worker/engine/sequence_mixer.h"
#include "tests/engine/engine_bench.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::engine::testing {
namespace {

constexpr int64_t kContext = 64;  // of the synthetic model

/// One layer whose attention matters: values of a tensor are spread widely.
Fixture one_layer(const std::string& name, const std::string& rope_scaling) {
  static const moestro::testing::TemporaryDirectory root;
  const auto dir = root / name;
  if (std::filesystem::exists(dir)) return {name, dir};
  moestro::testing::CheckpointOptions o;
  o.architecture = "MixtralForCausalLM";
  o.dtype = DType::kF32;
  o.layers = 1;
  o.config = R"({"num_attention_heads": 6, "num_key_value_heads": 2, "rope_scaling": )" + rope_scaling + "}";
  o.value = [](const std::string& tensor, int64_t index) {
    const float v = moestro::testing::synthetic_value(tensor, index);
    return tensor.find("norm") != std::string::npos ? 1.0f : 2.0f * v;
  };
  std::filesystem::create_directories(dir);
  moestro::testing::write_checkpoint(dir, o);
  return {name, dir};
}

std::vector<TokenId> tokens(size_t count, uint32_t seed) {
  std::vector<TokenId> ids;
  for (uint32_t state = seed; ids.size() < count;) {
    state = state * 1664525u + 1013904223u;
    ids.push_back(static_cast<TokenId>((state >> 16) % 40));
  }
  return ids;
}

BenchOptions with(VisiblePositions visible, DType kv = DType::kF32, int64_t kv_tokens = 4096) {
  BenchOptions o;
  o.engine.visible = visible;
  o.engine.kv_dtype = kv;
  o.engine.kv_tokens = kv_tokens;
  return o;
}

TEST(Sinks, AreRefusedWhereWhatIsSeenDependsOnMoreThanDistance) {
  model::ModelSpec spec;
  spec.layers.resize(2);
  const auto ops = kernels::make_reference_ops();
  const VisiblePositions window{.sinks = 2, .window = 8};
  EXPECT_TRUE(check_mixers(spec, window, *ops).is_ok());
  std::vector<model::ModelSpec> others(3, spec);
  others[0].layers[1].attention.chunk = 32;
  others[1].layers[1].attention.rope = false;
  others[2].layers[1].attention.qk_norm = model::AttentionSpec::QkNorm::kRotatedHeads;
  for (const model::ModelSpec& other : others) {
    EXPECT_TRUE(check_mixers(other, {}, *ops).is_ok());
    const Status refused = check_mixers(other, window, *ops);
    EXPECT_EQ(refused.code(), Code::kUnsupported);
    EXPECT_NE(refused.message().find("--kv-window with Llama-4's attention"), std::string::npos) << refused.message();
  }
}

/// What the plain engine says of ids[p + 1] after the sinks and the window of a query at p alone.
float of_short_sequence(Bench& plain, const std::vector<TokenId>& ids, int64_t p, VisiblePositions v) {
  std::vector<TokenId> seen(ids.begin(), ids.begin() + v.sinks);
  seen.insert(seen.end(), ids.begin() + (p - v.window + 1), ids.begin() + p + 2);
  return plain.score({seen}, 100).front().back();
}

class SinksTest : public ::testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  Fixture fixture() const { return one_layer(GetParam().first, GetParam().second); }
};

TEST_P(SinksTest, FarQueriesEqualShortSequences) {
  Bench plain(fixture());
  const auto ids = tokens(200, 7);  // three times the model's context
  for (const VisiblePositions v : {VisiblePositions{4, 12}, {1, 16}, {20, 30}, {0, 9}, {62, 1}, {0, kContext - 1}}) {
    Bench bench(fixture(), with(v));
    const auto streamed = bench.score({ids}, 37).front();
    Bench window_alone(fixture(), with({0, v.window}));
    const auto without = window_alone.score({ids}, 37).front();
    double apart = 0;
    for (int64_t p = v.sinks + v.window; p + 1 < 200; p += 7) {
      const float wanted = of_short_sequence(plain, ids, p, v);
      ASSERT_NEAR(streamed[static_cast<size_t>(p)], wanted, 1e-3 * std::max(1.0f, std::abs(wanted)))
          << "position " << p << " sinks " << v.sinks << " window " << v.window;
      apart = std::max<double>(apart, std::abs(without[static_cast<size_t>(p)] - wanted));
    }
    if (v.sinks > 0) EXPECT_GT(apart, 0.1) << "sinks make no difference: the comparison sees nothing";
  }
}

TEST_P(SinksTest, NothingChangesBeforeTheGap) {
  const auto ids = tokens(32, 3);
  Bench plain(fixture()), bench(fixture(), with({12, 20}));
  EXPECT_EQ(plain.score({ids}, 100), bench.score({ids}, 9));
}

INSTANTIATE_TEST_SUITE_P(
    Rope, SinksTest,
    ::testing::Values(std::pair<std::string, std::string>{"plain", "null"},
                      std::pair<std::string, std::string>{"linear", R"({"rope_type": "linear", "factor": 2.0})"},
                      std::pair<std::string, std::string>{
                          "llama3", R"({"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                                             "high_freq_factor": 4.0, "original_max_position_embeddings": 16})"},
                      std::pair<std::string, std::string>{
                          "yarn", R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16})"}),
    [](const auto& param) { return param.param.first; });

/// A cache of 64 tokens: blocks that fell out of sight are written anew, and the sequence is ten times as long.
TEST(Sinks, AStreamRunsInACacheSmallerThanItself) {
  const Fixture fixture = one_layer("plain", "null");
  const auto ids = tokens(640, 11);
  for (const DType kv : {DType::kF32, DType::kInt8}) {
    Bench large(fixture, with({4, 12}, kv)), small(fixture, with({4, 12}, kv, 64));
    ASSERT_EQ(small.engine().limits().kv_blocks, 4);
    EXPECT_GT(small.engine().limits().context_max, 640);
    const auto expected = large.score({ids}, 100).front();
    for (int32_t p = 0; p + 1 < 640; ++p) {
      StepPlan& plan = small.plan();
      PlanSequence& s = plan.sequences.emplace_back();
      s.id = SequenceId(1);
      if (p % 16 == 0)
        s.blocks_first = static_cast<uint32_t>(p / 16),
        s.blocks = {p < 16 ? 0 : 1 + static_cast<uint32_t>(p / 16 - 1) % 3};
      s.score_targets = {ids[static_cast<size_t>(p + 1)]};
      plan.tokens.push_back({0, p, ids[static_cast<size_t>(p)]});
      const auto outcome = small.run();
      ASSERT_TRUE(outcome.is_ok() && outcome->sequences[0].status.is_ok()) << p;
      const float score = outcome->sequences[0].scores.at(0).logprob;
      ASSERT_EQ(0, std::memcmp(&score, &expected[static_cast<size_t>(p)], sizeof score)) << "position " << p;
    }
  }
}

TEST(Sinks, OnlyWhatQueriesSeeMustBeWritten) {
  Bench bench(one_layer("plain", "null"), with({20, 12}));
  const auto ids = tokens(70, 5);
  for (const uint64_t id : {1, 2, 3, 4}) bench.add(id, ids);
  ASSERT_TRUE(bench.run().is_ok());
  bench.add(1, {5}).sample = true;
  const TokenId expected = bench.run()->sequences[0].sampled.at(0).id;
  // Position 70 sees 0 to 19 and 59 to 70: of the blocks from 0, 16, 32, 48, 64 only that from 32 may be anyone's.
  for (const auto& [id, gone] : {std::pair<uint64_t, size_t>{2, 2}, {3, 1}, {4, 3}}) {
    PlanSequence& s = bench.add(id, {5});
    s.sample = true;
    std::vector<uint32_t> table = bench.table(id);
    table[gone] = static_cast<uint32_t>(bench.engine().limits().kv_blocks - 1);
    s.blocks_first = 0, s.blocks = table;
    const auto outcome = bench.run();
    ASSERT_TRUE(outcome.is_ok());
    EXPECT_EQ(outcome->sequences[0].status.is_ok(), gone == 2) << outcome->sequences[0].status.message();
    if (gone == 2) EXPECT_EQ(outcome->sequences[0].sampled.at(0).id, expected);
    if (gone != 2)
      EXPECT_NE(outcome->sequences[0].status.message().find("(from " + std::to_string(16 * gone) + ")"),
                std::string::npos);
  }
}

/// The message with which an engine refuses to be made.
std::string refusal(const Fixture& fixture, const EngineOptions& options) {
  const auto ops = kernels::make_cpu_ops({.threads = 1, .deterministic = true, .isa = kernels::Isa::kScalar});
  const SteadyClock clock;
  auto source = store::ResidentSource::open(packed(fixture, DType::kF32, DType::kF32));
  MOESTRO_CHECK(source.is_ok(), source.status().message());
  const auto engine = Engine::create(options, **source, *ops, clock);
  return engine.is_ok() ? "" : engine.status().message();
}

TEST(Sinks, NonsenseIsRefusedByName) {
  const Fixture fixture = one_layer("plain", "null");
  const auto of = [&](VisiblePositions v) { return refusal(fixture, {.model = "m", .kv_tokens = 64, .visible = v}); };
  EXPECT_NE(of({-1, 8}).find("--kv-sinks -1 is negative"), std::string::npos);
  EXPECT_NE(of({0, -8}).find("--kv-window -8 is negative"), std::string::npos);
  EXPECT_NE(of({4, 0}).find("--kv-sinks 4 without --kv-window"), std::string::npos);
  EXPECT_NE(of({4, 61}).find("more than the model's context of 64"), std::string::npos);
  EXPECT_NE(of({int64_t{1} << 62, int64_t{1} << 62}).find("more than the model's context"), std::string::npos);
  EXPECT_EQ(of({4, 60}), "");
  const Fixture dynamic = one_layer("dynamic", R"({"rope_type": "dynamic", "factor": 2.0})");
  EXPECT_NE(refusal(dynamic, {.model = "m", .kv_tokens = 64, .visible = {4, 20}}).find("dynamic"), std::string::npos);
  EXPECT_EQ(refusal(dynamic, {.model = "m", .kv_tokens = 64}), "");
  EXPECT_NE(
      refusal(fixture, {.model = "m", .kv_dtype = DType::kInt4}).find("--kv-dtype int4; f32, bf16, f16 and int8 are"),
      std::string::npos);
}

TEST(Sinks, ContextsAreBoundedByTheModelAndTheCacheWithoutAWindow) {
  const auto context = [](VisiblePositions v, int64_t kv_tokens, int64_t asked) {
    BenchOptions o = with(v, DType::kF32, kv_tokens);
    o.engine.context_max = asked;
    return Bench(one_layer("plain", "null"), o).engine().limits().context_max;
  };
  EXPECT_EQ(context({}, 4096, 0), kContext);
  EXPECT_EQ(context({}, 4096, 1000), kContext);
  EXPECT_EQ(context({}, 32, 0), 32);
  EXPECT_EQ(context({4, 12}, 32, 0), 1 << 24);
  EXPECT_EQ(context({4, 12}, 32, 1000), 1000);
}

}  // namespace
}  // namespace moestro::engine::testing
