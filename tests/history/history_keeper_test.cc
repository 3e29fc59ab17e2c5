#include "orchestrator/history/history_keeper.h"

#include <gmock/gmock.h>

namespace moestro::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr activation::EamcShape kShape{2, 4, 1};
constexpr uint64_t kPack = 77;
constexpr WorkerId kOne{1}, kTwo{2};
constexpr SequenceId kSequence{5};

class HistoryKeeperTest : public ::testing::Test {
 protected:
  HistoryKeeperTest() { keeper_.begin(kPack, kShape); }

  Plan plan(WorkerId worker, int64_t first, int64_t tokens) {
    Plan p;
    p.id = PlanId{next_plan_++};
    p.sequences.resize(1);
    p.sequences[0].id = kSequence;
    p.sequences[0].first_position = first;
    p.sequences[0].tokens.resize(static_cast<size_t>(tokens));
    keeper_.planned(worker, p);
    return p;
  }
  /// As a worker answers that counts from where the plan says: every new token has chosen `expert` at both layers.
  static PlanOutcome outcome(const Plan& p, uint32_t expert) {
    const PlannedSequence& s = p.sequences[0];
    const int64_t fresh =
        s.first_position + static_cast<int64_t>(s.tokens.size()) - std::max(s.counted, s.first_position);
    PlanOutcome o;
    o.plan = p.id;
    o.sequences.resize(1);
    o.sequences[0].id = s.id;
    if (fresh > 0)
      for (uint32_t layer : {0U, 1U})
        o.sequences[0].activations.push_back({MoeLayerId(layer), ExpertId(expert), static_cast<uint32_t>(fresh)});
    return o;
  }
  void run(WorkerId worker, int64_t first, int64_t tokens, uint32_t expert) {
    keeper_.done(worker, outcome(plan(worker, first, tokens), expert));
  }

  HistoryKeeper keeper_{HistoryOptions{.capacity = 3}};
  uint64_t next_plan_ = 1;
};

std::vector<uint8_t> cells(const activation::Eamc& eamc, int32_t entry) {
  return {eamc.cells(entry).begin(), eamc.cells(entry).end()};
}

TEST_F(HistoryKeeperTest, ARequestEntersWhenItEnds) {
  keeper_.submitted(kSequence, 6);
  run(kOne, 0, 4, 1);
  run(kOne, 4, 2, 1);
  for (int64_t at = 6; at < 11; ++at) run(kOne, at, 1, 2);
  EXPECT_EQ(keeper_.figures().answers, 0U);
  EXPECT_THAT(keeper_.ended(kSequence), ElementsAre(HistoryEntry{false, 0}, HistoryEntry{true, 0}));
  EXPECT_EQ(cells(keeper_.history()->prompts, 0), (std::vector<uint8_t>{0, 255, 0, 0, 0, 255, 0, 0}));
  EXPECT_EQ(cells(keeper_.history()->answers, 0), (std::vector<uint8_t>{0, 0, 255, 0, 0, 0, 255, 0}));
  EXPECT_THAT(keeper_.ended(kSequence), IsEmpty());
}

TEST_F(HistoryKeeperTest, WhatAnotherWorkerComputesAgainCountsOnce) {
  keeper_.submitted(kSequence, 4);
  run(kOne, 0, 4, 1);
  for (int64_t at = 4; at < 8; ++at) run(kOne, at, 1, 2);
  plan(kOne, 8, 1);  // its result never comes
  keeper_.lost(kOne);
  // The successor computes all of it again; had it counted them, expert 3 would be in both matrices.
  const Plan again = plan(kTwo, 0, 9);
  EXPECT_EQ(again.sequences[0].counted, 8);
  keeper_.done(kTwo, outcome(again, 3));
  keeper_.ended(kSequence);
  EXPECT_EQ(cells(keeper_.history()->prompts, 0)[1], 255);
  EXPECT_EQ(cells(keeper_.history()->answers, 0)[2], 204);  // four of five tokens
  EXPECT_EQ(cells(keeper_.history()->answers, 0)[3], 51);
}

TEST_F(HistoryKeeperTest, ASourceIsOfThePromptAndHasNoPositions) {
  const auto encode = [this](WorkerId worker, uint32_t expert) {
    Plan p;
    p.id = PlanId{next_plan_++};
    p.sequences.resize(1);
    p.sequences[0].id = kSequence;
    p.sequences[0].source = true;
    p.sequences[0].tokens.resize(9);
    keeper_.planned(worker, p);
    PlanOutcome o;
    o.plan = p.id;
    o.sequences.resize(1);
    o.sequences[0].id = kSequence;
    o.sequences[0].activations = {{MoeLayerId(0), ExpertId(expert), 9}};
    keeper_.done(worker, o);
  };
  const auto decode = [this](WorkerId worker, int64_t first, int64_t tokens) {
    PlanOutcome o = outcome(plan(worker, first, tokens), 2);
    if (!o.sequences[0].activations.empty()) o.sequences[0].activations.erase(o.sequences[0].activations.begin());
    keeper_.done(worker, o);
  };
  keeper_.submitted(kSequence, 1);
  encode(kOne, 1);
  decode(kOne, 0, 1);
  decode(kOne, 1, 4);
  keeper_.lost(kOne);
  encode(kTwo, 3);  // again: it has been counted
  decode(kTwo, 0, 5);
  decode(kTwo, 5, 4);
  keeper_.ended(kSequence);
  EXPECT_EQ(cells(keeper_.history()->prompts, 0), (std::vector<uint8_t>{0, 255, 0, 0, 0, 0, 255, 0}));
  EXPECT_EQ(cells(keeper_.history()->answers, 0), (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 255, 0}));
}

TEST_F(HistoryKeeperTest, AWorkerThatCountsOldPositionsIsNotBelieved) {
  keeper_.submitted(kSequence, 4);
  run(kOne, 0, 4, 1);
  Plan again = plan(kTwo, 0, 4);
  again.sequences[0].counted = 0;
  keeper_.done(kTwo, outcome(again, 3));
  keeper_.ended(kSequence);
  EXPECT_EQ(cells(keeper_.history()->prompts, 0)[3], 0);
}

TEST_F(HistoryKeeperTest, ALateResultOfALostWorkerAndOneOfAnEndedSequenceCountNothing) {
  keeper_.submitted(kSequence, 4);
  const Plan p = plan(kOne, 0, 4);
  keeper_.lost(kOne);
  keeper_.done(kOne, outcome(p, 1));
  EXPECT_THAT(keeper_.ended(kSequence), IsEmpty());
  keeper_.submitted(kSequence, 4);
  const Plan overshoot = plan(kTwo, 0, 4);
  keeper_.ended(kSequence);
  keeper_.done(kTwo, outcome(overshoot, 1));
  EXPECT_EQ(keeper_.figures().prompts, 0U);
}

TEST_F(HistoryKeeperTest, AbsurdCountsOfAPeerHarmNothing) {
  keeper_.submitted(kSequence, 4);
  PlanOutcome o = outcome(plan(kOne, 0, 4), 1);
  o.sequences[0].activations.push_back({MoeLayerId(9), ExpertId(1), 5});
  o.sequences[0].activations.push_back({MoeLayerId(1), ExpertId(4), UINT32_MAX});
  keeper_.done(kOne, o);
  EXPECT_EQ(keeper_.ended(kSequence).size(), 1U);
  EXPECT_EQ(cells(keeper_.history()->prompts, 0), (std::vector<uint8_t>{0, 255, 0, 0, 0, 255, 0, 0}));
}

/// A prompt of 4 tokens of expert 1; then `computed` tokens of an answer, of expert 2 as far as its stop string, of
/// expert 3 behind it.
class StopString : public HistoryKeeperTest {
 protected:
  void answer(int64_t computed, int64_t stands) {
    keeper_.submitted(kSequence, 4, /*text_ends=*/true);
    run(kOne, 0, 4, 1);
    for (int64_t i = 0; i < computed; ++i) run(kOne, 4 + i, 1, i < stands ? 2 : 3);
  }
  std::vector<uint8_t> answers() const { return cells(keeper_.history()->answers, 0); }
  const std::vector<uint8_t> only_two_{0, 0, 255, 0, 0, 0, 255, 0};
};

TEST_F(StopString, WhatWasComputedBehindItIsNotItsOwn) {
  answer(40, 38);
  EXPECT_THAT(keeper_.settled(kSequence, 39), ElementsAre(HistoryEntry{false, 0}, HistoryEntry{true, 0}))
      << "of 39 tokens the last was not computed";
  EXPECT_EQ(answers(), only_two_);
}

TEST_F(StopString, NorWhereTheSequenceHasEndedMeanwhile) {
  answer(8, 6);
  EXPECT_THAT(keeper_.ended(kSequence), IsEmpty()) << "its text is still being looked at";
  keeper_.settled(kSequence, 7);
  EXPECT_EQ(answers(), only_two_);
  EXPECT_THAT(keeper_.settled(kSequence, 7), IsEmpty());
}

TEST_F(StopString, WithoutOneAllOfItStands) {
  answer(40, 40);
  keeper_.ended(kSequence);
  keeper_.settled(kSequence, 41);
  EXPECT_EQ(answers(), only_two_);
}

TEST_F(StopString, FoundTooLateTheAnswerIsLeftOut) {
  answer(40, 10);
  EXPECT_THAT(keeper_.settled(kSequence, 11), ElementsAre(HistoryEntry{false, 0})) << "the prompt stands";
}

TEST_F(StopString, TokensThatWereComputedTogetherStandTogether) {
  answer(6, 6);
  plan(kOne, 10, 1);  // two results that never come
  keeper_.lost(kOne);
  run(kTwo, 0, 12, 3);  // positions 10 and 11 at once
  keeper_.settled(kSequence, 8);  // of which 10 stands
  EXPECT_EQ(answers(), only_two_);
}

TEST_F(StopString, WhoNeverSaysHowFarItStandsLeavesNothing) {
  answer(8, 8);
  keeper_.ended(kSequence);
  for (uint64_t other = 100; other < 100 + 4096; ++other) {
    keeper_.submitted(SequenceId{other}, 4, true);
    keeper_.ended(SequenceId{other});
  }
  EXPECT_THAT(keeper_.settled(kSequence, 9), IsEmpty());
}

TEST_F(HistoryKeeperTest, AFullHistoryReplacesAndSaysSo) {
  for (uint32_t i = 0; i < 5; ++i) {
    keeper_.submitted(kSequence, 4);
    run(kOne, 0, 4, i % 4);
    keeper_.ended(kSequence);
  }
  EXPECT_EQ(keeper_.figures().prompts, 3U);
  EXPECT_EQ(keeper_.figures().requests, 5U);
  EXPECT_EQ(keeper_.figures().replacements, 2U);
}

TEST_F(HistoryKeeperTest, CheckpointsComeWhileSomethingChangesAndBringItBack) {
  using std::chrono::seconds;
  EXPECT_FALSE(keeper_.checkpoint(seconds(100), true));
  keeper_.submitted(kSequence, 4);
  run(kOne, 0, 4, 1);
  keeper_.ended(kSequence);
  EXPECT_FALSE(keeper_.checkpoint(seconds(159), false));
  const auto bytes = keeper_.checkpoint(seconds(160), false);
  ASSERT_TRUE(bytes);
  EXPECT_FALSE(keeper_.checkpoint(seconds(300), true));
  keeper_.not_kept();
  EXPECT_TRUE(keeper_.checkpoint(seconds(300), true));

  HistoryKeeper same({.capacity = 3, .checkpoint = *bytes}), other({.capacity = 3, .checkpoint = *bytes});
  same.begin(kPack, kShape);
  EXPECT_EQ(same.figures().prompts, 1U);
  EXPECT_EQ(cells(same.history()->prompts, 0), cells(keeper_.history()->prompts, 0));
  other.begin(kPack + 1, kShape);
  EXPECT_EQ(other.figures().prompts, 0U);
}

TEST_F(HistoryKeeperTest, AnotherPackBeginsAnew) {
  keeper_.submitted(kSequence, 4);
  run(kOne, 0, 4, 1);
  keeper_.begin(kPack, kShape);  // the same once more: nothing happens
  keeper_.begin(kPack + 1, kShape);
  EXPECT_THAT(keeper_.ended(kSequence), IsEmpty());
  EXPECT_EQ(keeper_.figures().prompts, 0U);
}

TEST(HistoryKeeperOff, KeepsNothing) {
  HistoryKeeper keeper(HistoryOptions{.capacity = 0});
  keeper.begin(kPack, kShape);
  keeper.submitted(kSequence, 4);
  EXPECT_EQ(keeper.history(), nullptr);
  EXPECT_THAT(keeper.ended(kSequence), IsEmpty());
  EXPECT_FALSE(keeper.checkpoint(std::chrono::hours(1), true));
}

}  // namespace
}  // namespace moestro::orchestrator
