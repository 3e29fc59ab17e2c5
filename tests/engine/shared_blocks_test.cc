// A sequence that begins with blocks which another has computed gets bitwise what it would have got alone.

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>

#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

constexpr size_t kShared = 2 * kernels::kKvBlockTokens;

std::vector<TokenId> tokens_of(uint32_t seed, size_t count, int64_t vocab) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    tokens.push_back(static_cast<TokenId>((seed >> 8) % static_cast<uint32_t>(vocab)));
  }
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class SharedBlocksTest : public ::testing::TestWithParam<Fixture> {
 protected:
  SharedBlocksTest()
      : bench_(GetParam()), vocab_(bench_.engine().spec().vocab), prefix_(tokens_of(1, kShared, vocab_)) {}

  /// Log-probabilities of the tokens behind the first of `tail`, behind the prefix, by a fresh engine that computes
  /// all.
  std::vector<float> alone(const std::vector<TokenId>& tail) {
    Bench bench(GetParam());
    const auto scores = bench.score({joined(prefix_, tail)}, 1000).front();
    return {scores.begin() + static_cast<std::ptrdiff_t>(kShared), scores.end()};
  }
  /// Adds a sequence of this tail to the plan, behind the blocks of `other`.
  void score_behind(uint64_t other, uint64_t id, const std::vector<TokenId>& tail) {
    PlanSequence& s = bench_.add_behind(other, kShared / kernels::kKvBlockTokens, id, tail);
    s.score_targets.assign(tail.begin() + 1, tail.end());
    s.score_targets.push_back(-1);
  }
  std::vector<float> scores(const SequenceOutcome& s, size_t count) {
    EXPECT_TRUE(s.status.is_ok()) << s.status.message();
    std::vector<float> out;
    for (size_t i = 0; i < count && i < s.scores.size(); ++i) out.push_back(s.scores[i].logprob);
    return out;
  }
  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  Bench bench_;
  const int64_t vocab_;
  const std::vector<TokenId> prefix_;
};

TEST_P(SharedBlocksTest, GiveBitwiseTheSameLogProbabilities) {
  for (const auto& piece : {std::vector<TokenId>(prefix_.begin(), prefix_.begin() + 7),
                            std::vector<TokenId>(prefix_.begin() + 7, prefix_.end())}) {
    bench_.add(1, piece);
    ASSERT_TRUE(bench_.run().is_ok());
  }
  const auto one = tokens_of(2, 21, vocab_), two = tokens_of(3, 5, vocab_), late = tokens_of(4, 18, vocab_);
  bench_.add(1, {one[0]}).sample = true;  // their owner goes on in the same plan
  score_behind(1, 2, one);
  score_behind(1, 3, two);
  const auto outcome = bench_.run();
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_TRUE(same(scores(outcome->sequences[1], 20), alone(one)));
  EXPECT_TRUE(same(scores(outcome->sequences[2], 4), alone(two)));
  bench_.plan().released.push_back({SequenceId(1), 0});  // the blocks outlive their first owner
  score_behind(2, 4, late);
  const auto last = bench_.run();
  ASSERT_TRUE(last.is_ok());
  EXPECT_TRUE(same(scores(last->sequences[0], 17), alone(late)));
}

TEST_P(SharedBlocksTest, AWrongPrefixShows) {
  std::vector<TokenId> other = prefix_;
  other[3] = static_cast<TokenId>((other[3] + 1) % vocab_);
  other.back() = static_cast<TokenId>((other.back() + 1) % vocab_);
  bench_.add(1, other);
  ASSERT_TRUE(bench_.run().is_ok());
  const auto tail = tokens_of(2, 21, vocab_);
  score_behind(1, 2, tail);
  const auto outcome = bench_.run();
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_FALSE(same(scores(outcome->sequences[0], 20), alone(tail)));
}

TEST_P(SharedBlocksTest, BlocksThatNobodyHasFilledAreRefused) {
  bench_.add(1, std::vector<TokenId>(prefix_.begin(), prefix_.end() - 1));
  ASSERT_TRUE(bench_.run().is_ok());
  score_behind(1, 2, tokens_of(2, 3, vocab_));
  const auto outcome = bench_.run();
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_NE(outcome->sequences[0].status.message().find("does not hold"), std::string::npos);
}

/// Notes what was found of sequences that are new.
class FoundWatch final : public ExpertWatch {
 public:
  void found(SequenceId sequence, int64_t tokens, std::span<const activation::ActivationCount> counts) override {
    told.push_back({sequence, tokens, {counts.begin(), counts.end()}});
  }
  void begin_step(PlanId, std::span<const WatchedSequence>) override {}
  void routed(MoeLayerId, std::span<const int32_t>, std::span<const lanes::RoutedExpert>,
              std::span<const float>) override {}
  void foresee(MoeLayerId) override {}
  void end_step() override {}
  void abandon() override {}
  void forget(SequenceId) override {}

  struct Told {
    SequenceId sequence;
    int64_t tokens = 0;
    std::vector<activation::ActivationCount> counts;
  };
  std::vector<Told> told;
};

TEST_P(SharedBlocksTest, WhatTheirTokensChoseCountsForWhoBeginsBehindThem) {
  if (bench_.engine().limits().visible.window > 0) GTEST_SKIP() << "with a window nothing is kept";
  const auto& spec = bench_.engine().spec();
  const auto matrix = [&](const std::vector<activation::ActivationCount>& counts) {
    activation::ActivationMatrix m(spec.moe_layers(), spec.moe().experts);
    EXPECT_TRUE(m.add(counts));
    std::vector<uint32_t> cells;
    for (uint32_t l = 0; l < spec.moe_layers(); ++l)
      cells.insert(cells.end(), m.row(MoeLayerId(l)).begin(), m.row(MoeLayerId(l)).end());
    return cells;
  };
  FoundWatch watch;
  bench_.engine().set_expert_watch(&watch);
  const auto tail = tokens_of(2, 21, vocab_);
  bench_.add(1, joined(prefix_, tail));
  const auto whole = bench_.run();
  ASSERT_TRUE(whole.is_ok());
  EXPECT_TRUE(watch.told.empty());
  bench_.add_behind(1, kShared / kernels::kKvBlockTokens, 2, tail);
  bench_.add_behind(1, kShared / kernels::kKvBlockTokens, 3, tail).counted = kShared;
  const auto behind = bench_.run();
  ASSERT_TRUE(behind.is_ok());
  EXPECT_EQ(matrix(behind->sequences[0].activations), matrix(whole->sequences[0].activations));
  ASSERT_EQ(watch.told.size(), 2u);
  EXPECT_EQ(watch.told[0].sequence, SequenceId(2));
  EXPECT_EQ(watch.told[0].tokens, static_cast<int64_t>(kShared));
  auto counted = behind->sequences[1].activations;
  counted.insert(counted.end(), watch.told[1].counts.begin(), watch.told[1].counts.end());
  EXPECT_EQ(matrix(counted), matrix(whole->sequences[0].activations))
      << "counted before: here they count no more, but the predictor hears of them";
  bench_.add(2, {tail[0]});
  ASSERT_TRUE(bench_.run().is_ok());
  EXPECT_EQ(watch.told.size(), 2u) << "once";
  bench_.engine().set_expert_watch(nullptr);
}

std::string fixture_name(const ::testing::TestParamInfo<Fixture>& param) {
  std::string name = param.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Fixtures, SharedBlocksTest, ::testing::ValuesIn(fixtures()), fixture_name);

}  // namespace
}  // namespace moestro::engine::testing
