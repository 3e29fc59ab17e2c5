// Encoder-decoder models in the engine: sources and targets in one step, what a source's memory outlives, and plans
// that are refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "services/worker/engine/position_tables.h"
#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

using ::testing::HasSubstr;

std::vector<Fixture> with_encoders() {
  std::vector<Fixture> found = all_fixtures();
  std::erase_if(found, [](const Fixture& f) { return !f.has_encoder(); });
  return found;
}

/// Plans made by hand; blocks are given out from the front.
class EncoderDecoderTest : public ::testing::TestWithParam<Fixture> {
 protected:
  PlanSequence& sequence(uint64_t id, const std::vector<TokenId>& tokens, int64_t first = 0) {
    const auto index = static_cast<uint32_t>(bench_.plan().sequences.size());
    PlanSequence& s = bench_.plan().sequences.emplace_back();
    s.id = SequenceId(id);
    for (size_t i = 0; i < tokens.size(); ++i)
      bench_.plan().tokens.push_back({index, static_cast<int32_t>(first + static_cast<int64_t>(i)), tokens[i]});
    return s;
  }
  PlanSequence& source(uint64_t id, const std::vector<TokenId>& tokens, uint32_t first_block) {
    PlanSequence& s = sequence(id, tokens);
    s.source = true;
    s.memory.resize((tokens.size() + 15) / 16);
    std::iota(s.memory.begin(), s.memory.end(), first_block);
    return s;
  }
  /// The whole target with the log-probabilities of its tokens.
  PlanSequence& target(uint64_t id, const std::vector<TokenId>& tokens, uint32_t first_block) {
    PlanSequence& s = sequence(id, tokens);
    s.blocks.resize((tokens.size() + 15) / 16);
    std::iota(s.blocks.begin(), s.blocks.end(), first_block);
    for (size_t i = 0; i < tokens.size(); ++i) s.score_targets.push_back(i + 1 < tokens.size() ? tokens[i + 1] : -1);
    return s;
  }
  StepOutcome run() {
    auto outcome = bench_.run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    return std::move(*outcome);
  }
  std::string error_of_one() { return run().sequences.at(0).status.message(); }

  static std::vector<float> scores(const SequenceOutcome& s) {
    EXPECT_TRUE(s.status.is_ok()) << s.status.message();
    std::vector<float> out;
    for (size_t i = 0; i + 1 < s.scores.size(); ++i) out.push_back(s.scores[i].logprob);
    return out;
  }
  std::vector<TokenId> prompt(size_t index) { return GetParam().prompts("f32").at(index).ids; }

  Bench bench_{GetParam()};
};

TEST_P(EncoderDecoderTest, SourcesAndTargetsShareSteps) {
  const auto a = prompt(3), b = prompt(2);
  const auto alone_a = bench_.score({a}, a.size()).front(), alone_b = bench_.score({b}, b.size()).front();
  source(1, source_of(a), 0);
  EXPECT_TRUE(run().sequences[0].sampled.empty());
  source(2, source_of(b), 8);
  target(1, a, 16);
  EXPECT_EQ(scores(run().sequences[1]), alone_a);
  target(2, b, 24);
  target(1, a, 16);  // again, as after a preemption that left its memory
  const StepOutcome outcome = run();
  EXPECT_EQ(scores(outcome.sequences[0]), alone_b);
  EXPECT_EQ(scores(outcome.sequences[1]), alone_a);
}

TEST_P(EncoderDecoderTest, AMemoryServesSeveralTargets) {
  const auto a = prompt(3);
  const auto alone = bench_.score({a}, a.size()).front();
  source(1, source_of(a), 0);
  run();
  PlanSequence& other = target(2, a, 16);
  other.memory = {0, 1, 2};
  other.memory.resize((source_of(a).size() + 15) / 16);
  other.memory_tokens = static_cast<int64_t>(source_of(a).size());
  EXPECT_EQ(scores(run().sequences[0]), alone);
}

TEST_P(EncoderDecoderTest, AnotherSourceShows) {
  const auto a = prompt(3);
  const auto alone = bench_.score({a}, a.size()).front();
  std::vector<TokenId> other = source_of(a);
  other.front() = other.front() == 5 ? 6 : 5;
  source(1, other, 0);
  run();
  target(1, a, 16);
  EXPECT_NE(scores(run().sequences[0]), alone);
}

// Numbers of transformers 5.24.
TEST_P(EncoderDecoderTest, PaddingInASourceIsNotCounted) {
  const std::map<std::string, std::vector<float>> known = {
      {"nllb_moe_bias", {-6.76397F, -3.753248F, -6.192143F, -5.632376F, -5.464243F}},
      {"nllb_moe_scaled", {-6.761561F, -3.984315F, -7.118071F, -6.556473F, -5.142632F}}};
  const auto want = known.find(GetParam().name);
  ASSERT_EQ(want != known.end(), bench_.engine().spec().sinusoidal_positions);
  if (want == known.end()) return;
  source(1, {5, 1, 77, 1, 1, 40, 12}, 0);
  run();
  target(1, {2, 9, 31, 1, 100, 64}, 16);
  EXPECT_THAT(scores(run().sequences[0]), ::testing::Pointwise(::testing::FloatNear(1e-4F), want->second));
}

TEST_P(EncoderDecoderTest, StacksCountTheirOwnLayers) {
  const auto a = prompt(3);
  const model::ModelSpec& spec = bench_.engine().spec();
  const auto total = [&](const SequenceOutcome& s, uint32_t first, uint32_t end) {
    uint64_t sum = 0;
    for (const auto& c : s.activations) {
      EXPECT_TRUE(c.layer.value >= first && c.layer.value < end);
      sum += c.tokens;
    }
    return static_cast<int64_t>(sum);
  };
  const auto encoder = static_cast<uint32_t>(spec.encoder_moe_layers()), all = static_cast<uint32_t>(spec.moe_layers());
  source(1, source_of(a), 0);
  EXPECT_EQ(total(run().sequences[0], 0, encoder),
            static_cast<int64_t>(source_of(a).size()) * encoder * spec.moe().top_k)
      << "a choice that its expert has no room for is counted";
  target(1, a, 16);
  EXPECT_EQ(total(run().sequences[0], encoder, all), std::ssize(a) * (all - encoder) * spec.moe().top_k);
}

TEST_P(EncoderDecoderTest, PlansThatMakeNoSenseAreRefused) {
  const auto a = prompt(2);
  target(1, a, 16);
  EXPECT_THAT(error_of_one(), HasSubstr("its source has not been encoded"));
  source(1, source_of(a), 0).sample = true;
  EXPECT_THAT(error_of_one(), HasSubstr("neither sampled nor scored"));
  source(1, source_of(a), 0).memory.push_back(9);
  EXPECT_THAT(error_of_one(), HasSubstr("blocks for a memory of"));
  source(1, source_of(a), 0).memory.back() = 1u << 30;
  EXPECT_THAT(error_of_one(), HasSubstr("in its memory"));
  source(1, {3, 400}, 0);
  EXPECT_THAT(error_of_one(), HasSubstr("token id 400"));
  source(1, {3, 4}, 0);
  bench_.plan().tokens.back().position = 5;
  EXPECT_THAT(error_of_one(), HasSubstr("a source is whole"));
  PlanSequence& other = target(2, a, 16);
  other.memory = {40}, other.memory_tokens = 3;
  EXPECT_THAT(error_of_one(), HasSubstr("does not hold the memory"));
  source(3, source_of(a), 0);
  PlanSequence& early = target(4, a, 16);
  early.memory.resize((source_of(a).size() + 15) / 16);
  std::iota(early.memory.begin(), early.memory.end(), 0U);
  early.memory_tokens = static_cast<int64_t>(source_of(a).size());
  EXPECT_THAT(run().sequences[1].status.message(), HasSubstr("does not hold the memory"))
      << "a source of the same plan may fail";
  source(5, source_of(a), 0);
  run();
  PlanSequence& before = target(6, a, 16);
  before.memory.resize((source_of(a).size() + 15) / 16);
  std::iota(before.memory.begin(), before.memory.end(), 0U);
  before.memory_tokens = static_cast<int64_t>(source_of(a).size());
  source(7, source_of(a), 0);
  EXPECT_THAT(run().sequences[0].status.message(), HasSubstr("does not hold the memory"))
      << "a source behind it in the plan writes there before it reads";
}

TEST_P(EncoderDecoderTest, ForgottenMemoryIsNotRead) {
  const auto a = prompt(2);
  source(1, source_of(a), 0);
  run();
  bench_.engine().forget_all();
  PlanSequence& s = target(1, a, 16);
  s.memory.resize((source_of(a).size() + 15) / 16);
  std::iota(s.memory.begin(), s.memory.end(), 0U);
  s.memory_tokens = static_cast<int64_t>(source_of(a).size());
  EXPECT_THAT(error_of_one(), HasSubstr("does not hold the memory"));
}

TEST_P(EncoderDecoderTest, MicroBatchesInTurnAreEqual) {
  std::vector<std::vector<TokenId>> prompts;
  for (size_t i = 0; i < 4; ++i) prompts.push_back(prompt(i));
  const auto together = bench_.score(prompts, 7);
  EngineOptions options{.model = "m", .kv_tokens = 4096, .micro_batches = MicroBatches::kInTurn, .poison_kv = true};
  Bench in_turn(GetParam(), {.engine = options, .micro_batch = 2});
  EXPECT_EQ(in_turn.score(prompts, 7), together);
}

TEST_P(EncoderDecoderTest, SettingsThatItLacksAreRefused) {
  const auto refusal = [&](const EngineOptions& options, bool deterministic) {
    auto source = store::ResidentSource::open(packed(GetParam(), DType::kF32, DType::kF32));
    EXPECT_TRUE(source.is_ok());
    const auto ops = kernels::make_cpu_ops({.threads = 1, .deterministic = deterministic});
    SteadyClock clock;
    const auto engine = Engine::create(options, **source, *ops, clock);
    return engine.is_ok() ? std::string() : engine.status().message();
  };
  EXPECT_THAT(refusal({.model = "m", .capacity_factor = 1.5}, false), HasSubstr("--capacity-factor"));
  EXPECT_THAT(refusal({.model = "m", .schedule = ScheduleKind::kExpertPipeline}, true),
              HasSubstr("--schedule expert-pipeline with an encoder-decoder model"));
  EXPECT_THAT(refusal({.model = "m", .visible = {2, 32}}, true), HasSubstr("--kv-window with an encoder-decoder"));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EncoderDecoderTest, ::testing::ValuesIn(with_encoders()),
                         [](const auto& param) { return param.param.name; });

TEST(EncoderDecoder, SourcesOfADecoderAloneAreRefused) {
  Bench bench(any_fixture());
  PlanSequence& s = bench.add(1, {3, 4, 5});
  s.source = true;
  const auto outcome = bench.run();
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_THAT(outcome->sequences[0].status.message(), HasSubstr("it has no encoder"));
}

TEST(Sinusoids, AreCountedFromThePaddingTokenWhichHasNone) {
  model::ModelSpec spec;
  spec.hidden = 6, spec.sinusoidal_positions = true, spec.pad_id = 1;
  const Sinusoids sinusoids(spec);
  const auto row = [](double counted) {
    std::vector<float> numbers;
    for (const double f : {1.0, 1e-2, 1e-4}) numbers.push_back(static_cast<float>(std::sin(counted * f)));
    for (const double f : {1.0, 1e-2, 1e-4}) numbers.push_back(static_cast<float>(std::cos(counted * f)));
    return numbers;
  };
  const std::vector<int32_t> ids = {7, 1, 7, 9, 1}, positions = {0, 1, 2, 0, 1};
  for (const bool sources : {false, true}) {  // of a source, padding is not counted
    std::vector<float> rows, want;
    sinusoids.append(ids, positions, sources, rows);
    for (const auto& one : {row(2), std::vector<float>(6), row(sources ? 3 : 4), row(2), std::vector<float>(6)})
      want.insert(want.end(), one.begin(), one.end());
    ASSERT_EQ(rows.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(rows[i], want[i], 1e-6) << i;
  }
  EXPECT_TRUE(Sinusoids(model::ModelSpec()).empty());
}

// By transformers' _relative_position_bucket (T5).
TEST(RelativeBias, BucketsAreThoseOfT5) {
  const model::RelativeBias bias{.buckets = 32, .reach = 128};
  const auto buckets = [&](std::vector<int64_t> distances, bool both_ways) {
    for (int64_t& d : distances) d = bias_bucket(bias, d, both_ways);
    return distances;
  };
  EXPECT_THAT(buckets({0, 1, 7, 8, 11, 12, 16, 23, 32, 64, 91, 127, 128, 500, -1, -8, -128}, true),
              ::testing::ElementsAre(0, 17, 23, 24, 24, 25, 26, 27, 28, 30, 31, 31, 31, 31, 1, 8, 15));
  EXPECT_THAT(buckets({5, 0, -1, -15, -16, -18, -19, -32, -64, -100, -127, -128, -1000}, false),
              ::testing::ElementsAre(0, 0, 1, 15, 16, 16, 17, 21, 26, 30, 31, 31, 31));
}

}  // namespace
}  // namespace moestro::engine::testing
