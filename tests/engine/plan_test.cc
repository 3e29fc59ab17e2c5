// What a plan may ask for, and that everything else is refused by name without harm.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() : bench_(any_fixture()), ids_(any_fixture().prompts("f32").front().ids) { ids_.resize(8); }

  /// The one sequence of the plan fails with this in its message.
  void expect_refused(const std::string& part) {
    const auto outcome = bench_.run();
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
    EXPECT_FALSE(outcome->sequences.at(0).status.is_ok());
    EXPECT_NE(outcome->sequences[0].status.message().find(part), std::string::npos)
        << outcome->sequences[0].status.message();
  }
  void expect_plan_refused(const std::string& part) {
    const auto outcome = bench_.run();
    ASSERT_FALSE(outcome.is_ok());
    EXPECT_NE(outcome.status().message().find(part), std::string::npos) << outcome.status().message();
  }

  Bench bench_;
  std::vector<TokenId> ids_;
};

TEST_F(PlanTest, WrongTokensAndPositions) {
  bench_.add(1, {static_cast<TokenId>(bench_.engine().spec().vocab)});
  expect_refused("outside the vocabulary");
  bench_.add(2, {-7});
  expect_refused("outside the vocabulary");
  bench_.add(3, ids_);
  bench_.plan().tokens[2].position = 7;
  expect_refused("not consecutive");
  bench_.add(4, ids_);
  for (auto& t : bench_.plan().tokens) t.position -= 1;
  expect_refused("outside the context");
  bench_.add(5, {ids_[0]});
  bench_.plan().tokens[0].position = std::numeric_limits<int32_t>::max();
  expect_refused("outside the context");
  bench_.add(6, {});
  expect_refused("no tokens");
}

TEST_F(PlanTest, WrongMicroBatches) {
  bench_.add(1, {ids_[0]}), bench_.add(2, {ids_[1]});
  bench_.plan().micro_batches = {0, 3};
  expect_plan_refused("micro-batches are not its sequences in their order");
  bench_.add(3, {ids_[0]}), bench_.add(4, {ids_[1]});
  bench_.plan().micro_batches = {1, 0};
  expect_plan_refused("micro-batches are not its sequences in their order");
  bench_.add(5, {ids_[0]});
  bench_.plan().micro_batches.assign(kMicroBatchesMax + 1, 0);
  expect_plan_refused("has 65 micro-batches, at most 64");
  bench_.add(6, {ids_[0]});
  bench_.plan().micro_batches = {0, 0, 1};  // empty ones are nothing
  ASSERT_TRUE(bench_.run().is_ok());
}

TEST_F(PlanTest, WrongBlocks) {
  bench_.add(1, ids_).blocks = {1u << 30};
  expect_refused("KV block");
  bench_.add(2, ids_).blocks_first = 5;
  expect_refused("block table");
  bench_.add(3, ids_).blocks.clear();
  expect_refused("has no KV block");
  bench_.add(4, ids_).blocks.assign(100000, 0);
  expect_refused("more KV blocks");
  bench_.add(5, ids_);
  bench_.plan().kv_copies.push_back({0, 1u << 31});
  expect_plan_refused("KV copy");
}

TEST_F(PlanTest, WrongSampling) {
  const auto with = [&](uint64_t id) -> Sampling& { return bench_.add(id, ids_).sampling; };
  with(1).temperature = std::numeric_limits<float>::quiet_NaN();
  expect_refused("temperature");
  with(2).top_p = 0;
  expect_refused("top_p");
  with(3).min_p = 2;
  expect_refused("min_p");
  with(4).top_k = -1;
  expect_refused("top_k");
  with(5).logprobs = 100000;
  expect_refused("logprobs");
  bench_.add(6, ids_).score_targets = {1, 2};
  expect_refused("score targets");
  bench_.add(7, ids_).score_targets.assign(8, 1 << 30);
  expect_refused("score target");
  with(8).repetition_penalty = -1;
  expect_refused("repetition_penalty");
  bench_.add(9, ids_).allowed = {1};
  expect_refused("mask");
  with(10).presence_penalty = 1;
  bench_.plan().sequences.back().sample = true;
  expect_refused("history has 0");
  bench_.add(11, ids_).history = {1 << 30};
  expect_refused("history has a token");
  PlanSequence& late = bench_.add(12, ids_);
  late.history = {1};
  late.history_first = 4;
  expect_refused("goes on at 4");
  bench_.add(13, ids_).state_sum_from = static_cast<int64_t>(ids_.size());
  expect_refused("hidden states from position");
}

TEST_F(PlanTest, WrongPlans) {
  bench_.add(1, ids_);
  bench_.plan().tokens[3].sequence = 9;
  expect_plan_refused("names no sequence");
  bench_.add(2, ids_);
  bench_.add(3, ids_);
  bench_.add(2, ids_);
  expect_plan_refused("sequence 2 appears twice");
  bench_.add(3, ids_);
  bench_.add(4, ids_);
  std::swap(bench_.plan().tokens[2], bench_.plan().tokens[9]);
  expect_plan_refused("not consecutive");
  bench_.add(5, std::vector<TokenId>(600, 1));
  expect_plan_refused("at most 512");
  bench_.plan().model = "another";
  bench_.add(6, ids_);
  expect_plan_refused("another");
}

TEST_F(PlanTest, ABadSequenceLeavesTheOthersAlone) {
  const auto alone = bench_.score({ids_}, 100).front();
  bench_.add(1, {-5});
  PlanSequence& good = bench_.add(2, ids_);
  good.score_targets.assign(ids_.begin() + 1, ids_.end());
  good.score_targets.push_back(-1);
  const auto outcome = bench_.run();
  ASSERT_TRUE(outcome.is_ok());
  EXPECT_FALSE(outcome->sequences[0].status.is_ok());
  ASSERT_TRUE(outcome->sequences[1].status.is_ok());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(outcome->sequences[1].scores[i].logprob, alone[i]);
}

TEST_F(PlanTest, KvThatWasNeverWrittenIsNotRead) {
  PlanSequence& s = bench_.add(1, ids_);
  s.sample = true;
  for (auto& t : bench_.plan().tokens) t.position += 4;
  expect_refused("does not hold");
  bench_.add(2, ids_);
  ASSERT_TRUE(bench_.run()->sequences[0].status.is_ok());
  bench_.engine().forget_all();  // a new KV epoch
  bench_.add(2, {ids_[0]});
  expect_refused("has no KV block");
}

const Fixture& fixture_named(const std::string& name) {
  static const std::vector<Fixture> all = fixtures();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Fixture& f) { return f.name == name; });
  MOESTRO_CHECK(it != all.end(), name);
  return *it;
}

TEST(PlanOfWindows, BlocksThatNoQuerySeesMayBeGone) {
  Bench bench(fixture_named("mixtral_window"));  // every layer sees 16 positions
  ASSERT_EQ(bench.engine().limits().visible.window, 16);
  EXPECT_EQ(bench.engine().limits().visible.sinks, 0);
  const std::vector<TokenId> prompt(60, 3);
  for (const uint64_t id : {1, 2, 3}) bench.add(id, prompt);
  const auto filled = bench.run();
  ASSERT_TRUE(filled.is_ok() && filled->sequences[0].status.is_ok() && filled->sequences[2].status.is_ok());
  bench.add(1, {5}).sample = true;
  const TokenId expected = bench.run()->sequences[0].sampled.at(0).id;
  // Position 60 sees 45 and later: the blocks from 0 to 31 may be anyone's, those from 32 on may not.
  const uint32_t unwritten = static_cast<uint32_t>(bench.engine().limits().kv_blocks - 1);
  for (const auto& [id, gone] : {std::pair<uint64_t, uint32_t>{2, 2}, {3, 3}}) {
    PlanSequence& s = bench.add(id, {5});
    s.sample = true;
    std::vector<uint32_t> table = bench.table(id);
    std::fill_n(table.begin(), gone, unwritten);
    s.blocks_first = 0, s.blocks = table;
    const auto outcome = bench.run();
    ASSERT_TRUE(outcome.is_ok());
    if (gone == 2) {
      ASSERT_TRUE(outcome->sequences[0].status.is_ok()) << outcome->sequences[0].status.message();
      EXPECT_EQ(outcome->sequences[0].sampled.at(0).id, expected);
    } else {
      EXPECT_NE(outcome->sequences[0].status.message().find("does not hold (from 32)"), std::string::npos)
          << outcome->sequences[0].status.message();
    }
  }
}

/// Samples `count` tokens; blocks that no query sees any more are given back as the sequence goes.
std::vector<TokenId> stream(int64_t kv_tokens, int64_t count) {
  Bench bench(fixture_named("mixtral_window"), {.engine = {.model = "m", .kv_tokens = kv_tokens, .poison_kv = true}});
  const int64_t window = bench.engine().limits().visible.window;
  std::vector<TokenId> out, next{3, 5, 7};
  for (int64_t length = 3; static_cast<int64_t>(out.size()) < count; ++length) {
    bench.add(1, next).sample = true;
    const auto outcome = bench.run();
    MOESTRO_CHECK(outcome.is_ok() && outcome->sequences[0].status.is_ok(), "a step of the stream");
    out.push_back(outcome->sequences[0].sampled.at(0).id);
    next = {out.back()};
    bench.leave_behind(1, static_cast<size_t>(std::max<int64_t>(0, length - window + 1) / kernels::kKvBlockTokens));
  }
  return out;
}

TEST(PlanOfWindows, ASequenceIsLongerThanTheCacheWhereTheModelHasAWindow) {
  Bench small(fixture_named("mixtral_window"), {.engine = {.model = "m", .kv_tokens = 48, .poison_kv = true}});
  const int64_t most = small.engine().limits().context_max;
  EXPECT_EQ(most, small.engine().spec().max_position);
  ASSERT_GT(most, 2 * 48);
  EXPECT_EQ(stream(48, most - 3), stream(4096, most - 3));
  Bench plain(any_fixture(), {.engine = {.model = "m", .kv_tokens = 48, .poison_kv = true}});
  EXPECT_EQ(plain.engine().limits().context_max, 48) << "what all layers see must be there";
}

TEST_F(PlanTest, ContinuesWithWhatTheParentSampled) {
  bench_.add(1, ids_).sample = true;
  const TokenId first = bench_.run()->sequences[0].sampled.at(0).id;
  bench_.add(1, {kSampledByParent}).sample = true;
  const auto piped = bench_.run();
  ASSERT_TRUE(piped.is_ok() && piped->sequences[0].status.is_ok());
  bench_.add(2, ids_);
  ASSERT_TRUE(bench_.run().is_ok());
  bench_.add(2, {first}).sample = true;
  EXPECT_EQ(bench_.run()->sequences[0].sampled.at(0).id, piped->sequences[0].sampled.at(0).id);
  bench_.add(2, {kSampledByParent});
  bench_.plan().tokens[0].position += 0;
  ASSERT_TRUE(bench_.run()->sequences[0].status.is_ok());
  bench_.add(2, {kSampledByParent});
  expect_refused("sampled nothing");
}

TEST_F(PlanTest, WhatTheParentSampledEndsASequence) {
  bench_.add(1, ids_).sample = true;
  const TokenId sampled = bench_.run()->sequences[0].sampled.at(0).id;
  PlanSequence& s = bench_.add(1, {kSampledByParent});
  s.sample = true;
  s.ends = {sampled + 1, sampled};
  bench_.add(2, ids_).sample = true;  // beside it
  const auto outcome = bench_.run();
  ASSERT_TRUE(outcome.is_ok());
  const SequenceOutcome& ended = outcome->sequences[0];
  EXPECT_TRUE(ended.status.is_ok()) << ended.status.message();
  EXPECT_TRUE(ended.sampled.empty() && ended.scores.empty() && ended.activations.empty()) << "nothing was computed";
  EXPECT_EQ(outcome->sequences[1].sampled.at(0).id, sampled);
  bench_.plan().sequences.clear();
  bench_.add(1, {kSampledByParent}).blocks.clear();
  expect_refused("sampled nothing");
  bench_.add(3, ids_).sample = true;
  ASSERT_TRUE(bench_.run()->sequences[0].status.is_ok());
  PlanSequence& alone = bench_.add(3, {kSampledByParent});
  alone.ends = {sampled};
  const auto empty = bench_.run();  // a plan in which nothing is left to compute
  ASSERT_TRUE(empty.is_ok()) << empty.status().message();
  EXPECT_TRUE(empty->sequences[0].status.is_ok());
}

TEST_F(PlanTest, PenaltiesSeeWhatTheParentSampled) {
  const auto penalised = [](PlanSequence& s, std::vector<TokenId> history, int64_t first) {
    s.sample = true;
    s.sampling.frequency_penalty = 30;
    s.sampling.logprobs = 4;
    s.history = std::move(history);
    s.history_first = first;
    s.history_prompt = 8;
  };
  penalised(bench_.add(1, ids_), ids_, 0);
  const TokenId first = bench_.run()->sequences[0].sampled.at(0).id;
  penalised(bench_.add(1, {kSampledByParent}), {kSampledByParent}, 8);
  const auto ahead = bench_.run();
  ASSERT_TRUE(ahead.is_ok() && ahead->sequences[0].status.is_ok()) << ahead->sequences[0].status.message();
  penalised(bench_.add(2, ids_), ids_, 0);
  ASSERT_TRUE(bench_.run()->sequences[0].status.is_ok());
  penalised(bench_.add(2, {first}), {first}, 8);
  const auto told = bench_.run();
  ASSERT_TRUE(told->sequences[0].status.is_ok());
  EXPECT_EQ(ahead->sequences[0].sampled.at(0).id, told->sequences[0].sampled.at(0).id);
  EXPECT_EQ(ahead->sequences[0].sampled[0].score.logprob, told->sequences[0].sampled[0].score.logprob);
  penalised(bench_.add(3, ids_), {ids_.begin(), ids_.end()}, 0);
  bench_.plan().sequences[0].history.back() = kSampledByParent;
  expect_refused("sampled nothing");
}

TEST_F(PlanTest, APlanWhoseParentFailedFailsAsAWhole) {
  bench_.add(1, ids_).sample = true;
  ASSERT_TRUE(bench_.run().is_ok());
  bench_.add(1, {kSampledByParent}).sample = true;
  bench_.plan().model = "another";
  expect_plan_refused("another");
  bench_.plan().model = "m";
  bench_.add(1, {kSampledByParent}).sample = true;
  for (auto& t : bench_.plan().tokens) t.position -= 1;
  bench_.add(2, ids_);
  expect_plan_refused("which failed or is not the one before it");
  bench_.plan().parent = PlanId();
  bench_.add(3, ids_);
  EXPECT_TRUE(bench_.run()->sequences[0].status.is_ok()) << "one without a parent stands for itself";
  bench_.engine().forget_all();
  bench_.add(3, {kSampledByParent});
  expect_plan_refused("is not the one before it");
}

TEST_F(PlanTest, BlocksAreUsedAgain) {
  const auto first = bench_.score({ids_}, 3).front();
  for (int i = 0; i < 600; ++i)
    ASSERT_EQ(bench_.score({ids_}, 100).front(), first) << "round " << i;  // more than the cache has blocks
}

TEST(CopiedBlocks, HoldTheSameKvInEveryFormat) {
  std::vector<TokenId> prompt = any_fixture().prompts("f32").front().ids;
  prompt.resize(17, 1);
  for (const DType kv : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
    Bench bench(any_fixture(), {.engine = {.model = "m", .kv_tokens = 256, .kv_dtype = kv, .poison_kv = true}});
    bench.add(1, {prompt.begin(), prompt.begin() + 16});
    const uint32_t source = bench.plan().sequences[0].blocks[0];
    ASSERT_TRUE(bench.run()->sequences[0].status.is_ok());
    bench.add(1, {prompt[16]}).score_targets = {3};
    const float expected = bench.run()->sequences[0].scores.at(0).logprob;
    PlanSequence& fork = bench.add(2, prompt);
    fork.score_targets = {3};
    bench.plan().kv_copies.push_back({source, fork.blocks[0]});
    bench.plan().tokens.erase(bench.plan().tokens.begin(), bench.plan().tokens.begin() + 16);
    const auto outcome = bench.run();
    ASSERT_TRUE(outcome->sequences[0].status.is_ok()) << outcome->sequences[0].status.message();
    EXPECT_EQ(outcome->sequences[0].scores.at(0).logprob, expected) << dtype_name(kv);
  }
}

TEST_F(PlanTest, CopiedBlocksHoldTheSameKv) {
  std::vector<TokenId> prompt = any_fixture().prompts("f32").front().ids;
  prompt.resize(17, 1);
  bench_.add(1, {prompt.begin(), prompt.begin() + 16});
  const uint32_t source = bench_.plan().sequences[0].blocks[0];
  ASSERT_TRUE(bench_.run()->sequences[0].status.is_ok());
  bench_.add(1, {prompt[16]}).sample = true;
  const TokenId expected = bench_.run()->sequences[0].sampled.at(0).id;
  PlanSequence& fork = bench_.add(2, prompt);
  fork.sample = true;
  bench_.plan().kv_copies.push_back({source, fork.blocks[0]});
  bench_.plan().tokens.erase(bench_.plan().tokens.begin(), bench_.plan().tokens.begin() + 16);
  const auto outcome = bench_.run();
  ASSERT_TRUE(outcome->sequences[0].status.is_ok()) << outcome->sequences[0].status.message();
  EXPECT_EQ(outcome->sequences[0].sampled.at(0).id, expected);
}

TEST_F(PlanTest, ActivationsCountEveryPositionOnce) {
  const auto& spec = bench_.engine().spec();
  const auto total = [](const SequenceOutcome& s) {
    int64_t n = 0;
    for (const auto& c : s.activations) n += c.tokens;
    return n;
  };
  bench_.add(1, ids_);
  EXPECT_EQ(total(bench_.run()->sequences[0]), 8 * spec.moe_layers() * spec.moe().top_k);
  PlanSequence& again = bench_.add(1, {ids_[7], ids_[0]});  // position 7 is computed a second time
  again.blocks.clear();
  for (auto& t : bench_.plan().tokens) t.position -= 1;
  const auto outcome = bench_.run();
  ASSERT_TRUE(outcome->sequences[0].status.is_ok()) << outcome->sequences[0].status.message();
  EXPECT_EQ(total(outcome->sequences[0]), spec.moe_layers() * spec.moe().top_k);
}

}  // namespace
}  // namespace moestro::engine::testing
