// Prompts whose hidden states are pooled: each position counts once, whatever is found, sent back or dies.

#include <gtest/gtest.h>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

SequenceRequest pooled(uint64_t id, Pooling pooling, size_t prompt) {
  SequenceRequest r = request(id, 0, 0);
  for (size_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<TokenId>(1 + i * 5 % 96));
  r.pooling = pooling;
  return r;
}

TEST(Pooling, AMeanIsOfAllChunks) {
  for (const size_t steps_in_flight : {1, 2}) {
    Simulation sim(1, /*step_tokens=*/10, /*prefix_cache=*/true, steps_in_flight);
    sim.join(small_worker());
    sim.submit(pooled(1, Pooling::kMean, 33));
    sim.submit(pooled(2, Pooling::kLast, 41));
    sim.submit(pooled(3, Pooling::kMean, 1));
    sim.finish_all();
    sim.expect_right_answers();
    EXPECT_EQ(sim.heard()[1].embedding.size(), 3u);
    EXPECT_TRUE(sim.all_is_released());
  }
}

TEST(Pooling, OnlyTheLastStateIsAskedForWhereItIsAllThatIsWanted) {
  Simulation sim(1, /*step_tokens=*/10);
  sim.join(small_worker());
  sim.submit(pooled(1, Pooling::kLast, 25));
  std::vector<int64_t> from;
  while (sim.has_plans()) {
    const PlannedSequence& s = sim.plans()[0].plan.sequences.at(0);
    EXPECT_FALSE(s.sample);
    from.push_back(s.state_sum_from);
    sim.compute_one();
  }
  EXPECT_EQ(from, (std::vector<int64_t>{-1, -1, 24}));
  sim.expect_right_answers();
}

TEST(Pooling, ALastStateReusesAPrefixAndAMeanDoesNot) {
  Simulation sim(1);
  sim.join(small_worker());
  sim.submit(pooled(1, Pooling::kMean, 20));
  sim.finish_all();
  EXPECT_EQ(sim.computed_tokens(), 20u);
  sim.submit(pooled(2, Pooling::kLast, 20));
  sim.finish_all();
  EXPECT_EQ(sim.computed_tokens(), 20u + 4) << "all blocks but the one of the last token are there";
  EXPECT_EQ(sim.heard()[2].cached, 16);
  sim.submit(pooled(3, Pooling::kMean, 20));
  sim.finish_all();
  EXPECT_EQ(sim.computed_tokens(), 20u + 4 + 20);
  sim.expect_right_answers();
}

/// What has been summed up stands: the prompt is computed again for its keys and values only.
TEST(Pooling, ADeadWorkersSumsAreNotSummedUpAgain) {
  Simulation sim(1, /*step_tokens=*/10);
  sim.join(small_worker());
  sim.submit(pooled(1, Pooling::kMean, 35));
  sim.compute_one();
  sim.compute_one();
  sim.kill_one();
  sim.join(small_worker());
  std::vector<int64_t> from;
  while (sim.has_plans()) {
    from.push_back(sim.plans()[0].plan.sequences.at(0).state_sum_from);
    sim.compute_one();
  }
  EXPECT_EQ(from, (std::vector<int64_t>{-1, -1, 20, 30}));
  sim.expect_right_answers();
}

TEST(Pooling, AMeanIsOfOneVersionOfTheWeights) {
  Simulation sim(1, /*step_tokens=*/10);
  sim.serve(1);
  sim.join(small_worker(), 1);
  sim.submit(pooled(1, Pooling::kMean, 35));
  sim.compute_one();
  sim.serve(2);
  sim.join(small_worker(), 2);
  sim.kill(WorkerId{1});
  sim.finish_all();
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  EXPECT_EQ(sim.heard()[1].failed->code(), Code::kUnavailable);
}

TEST(Pooling, ASumOfAnotherLengthFailsTheSequence) {
  for (const std::vector<double>& wrong : {std::vector<double>{}, {1, 2}}) {
    Simulation sim(1, /*step_tokens=*/10);
    sim.join(small_worker());
    sim.submit(pooled(1, Pooling::kMean, 15));
    sim.compute_one();  // three values
    PlanOutcome outcome;
    outcome.plan = sim.plans()[0].plan.id;
    SequenceOutcome& s = outcome.sequences.emplace_back();
    s.id = SequenceId{1};
    s.state_sum = wrong;
    sim.plans().clear();
    sim.feed(PlanDone{WorkerId{1}, outcome});
    ASSERT_TRUE(sim.heard()[1].failed.has_value());
    EXPECT_EQ(sim.heard()[1].failed->code(), Code::kInternal);
  }
}

}  // namespace
}  // namespace moestro::orchestrator
