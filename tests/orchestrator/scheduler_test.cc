#include "orchestrator/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

TEST(Scheduler, AnswersAreRightWhateverDies) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed, 24, true, /*steps_in_flight=*/1 + seed % 2);
    sim.let_results_be_late();
    uint64_t next = 1, deaths = 0;
    for (int i = 0; i < 400; ++i) {
      const uint64_t what = sim.roll(100);
      if (what < 12 && next <= 40) {
        sim.submit(sim.random_request(next++));
      } else if (what < 16 && sim.workers() < 3) {
        sim.join(small_worker());
      } else if (what < 17 && sim.workers() > 0 &&
                 deaths < 2) {  // two: below the number at which a sequence is given up
        sim.kill_one();
        ++deaths;
      } else if (what < 19 && next > 1) {
        const uint64_t id = 1 + sim.roll(next - 1);
        if (!sim.heard()[id].finished) sim.cancel(id);
      } else if (sim.has_plans()) {
        sim.compute_one();
      }
    }
    if (sim.workers() == 0) sim.join(small_worker());
    sim.finish_all();
    sim.expect_right_answers();
    EXPECT_EQ(sim.scheduler().waiting() + sim.scheduler().running(), 0u);
    EXPECT_EQ(sim.scheduler().kv().held, 0u) << "KV blocks leaked";
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Scheduler, ALongPromptIsCutAndDecodesGoOnBesideIt) {
  Simulation sim(1, /*step_tokens=*/10);
  sim.join(
      {.kv_blocks = 100, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 512, .step_sequences_max = 8});
  sim.submit(request(1, 3, 20));
  sim.compute_one();
  sim.submit(request(2, 50, 2));
  sim.compute_one();
  for (int step = 0; step < 5; ++step) {
    ASSERT_EQ(sim.plans().size(), 1u);
    const Plan& plan = sim.plans()[0].plan;
    ASSERT_EQ(plan.sequences.size(), 2u);
    EXPECT_EQ(plan.sequences[0].id.value, 1u) << "the decode comes first";
    EXPECT_EQ(plan.sequences[0].tokens.size(), 1u);
    EXPECT_EQ(plan.sequences[1].tokens.size(), 9u);
    EXPECT_FALSE(plan.sequences[1].sample);
    sim.compute_one();
  }
  sim.finish_all();
  sim.expect_right_answers();
}

SequenceRequest of_a_batch(uint64_t id, size_t prompt, int64_t tokens) {
  SequenceRequest r = request(id, prompt, tokens);
  r.background = true;
  return r;
}

TEST(Scheduler, OthersGoBeforeBatches) {
  Simulation sim(1, /*step_tokens=*/10);
  sim.join(
      {.kv_blocks = 100, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 512, .step_sequences_max = 8});
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(of_a_batch(id, 50, 2));
  sim.submit(request(4, 10, 2));
  sim.compute_one();  // what was planned before it came
  ASSERT_EQ(sim.plans().size(), 1u);
  const Plan& plan = sim.plans()[0].plan;
  EXPECT_EQ(plan.sequences[0].id.value, 4u);
  EXPECT_TRUE(plan.sequences[0].sample) << "its whole prompt goes first";
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Scheduler, ABatchMakesWayForWhoeverWaits) {
  Simulation sim(1);
  sim.join(
      {.kv_blocks = 100, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 512, .step_sequences_max = 2});
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(of_a_batch(id, 4, 30));
  sim.compute_one();
  sim.submit(request(4, 4, 3));
  sim.submit(of_a_batch(5, 4, 3));
  sim.compute_one();
  ASSERT_EQ(sim.plans().size(), 1u);
  std::vector<uint64_t> ids;
  const auto& plan = sim.plans()[0].plan;
  for (const PlannedSequence& s : plan.sequences) ids.push_back(s.id.value);
  EXPECT_NE(std::find(ids.begin(), ids.end(), 4u), ids.end());
  EXPECT_NE(std::find(ids.begin(), ids.end(), 1u), ids.end()) << "the older of the batch's stays";
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.scheduler().kv().held, 0u);
}

TEST(Scheduler, LoadIsSpreadOverWorkers) {
  Simulation sim(1);
  sim.join(small_worker());
  sim.join(small_worker());
  for (uint64_t id = 1; id <= 4; ++id) sim.submit(request(id, 8, 4));
  sim.compute_one();
  sim.compute_one();
  ASSERT_EQ(sim.plans().size(), 2u);
  EXPECT_EQ(sim.plans()[0].plan.sequences.size(), 2u);
  EXPECT_EQ(sim.plans()[1].plan.sequences.size(), 2u);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Scheduler, WhatCanNeverFitIsRefusedAndDoesNotBlockOthers) {
  Simulation sim(1);
  sim.join(small_worker());
  sim.submit(request(1, 100, 100));
  sim.submit(request(2, 8, 4));
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  EXPECT_EQ(sim.heard()[1].failed->code(), Code::kInvalidArgument) << "trying again would not help";
  EXPECT_NE(sim.heard()[1].failed->message().find("--kv-tokens"), std::string::npos);
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[2].finished.has_value());
}

TEST(Scheduler, ASequenceGoesToAWorkerThatHoldsAllOfIt) {
  Simulation sim(1);
  sim.join({.kv_blocks = 8, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 40, .step_sequences_max = 5});
  sim.join({.kv_blocks = 40, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 40, .step_sequences_max = 5});
  sim.submit(request(1, 20, 40));
  ASSERT_EQ(sim.plans().size(), 1u);
  EXPECT_EQ(sim.plans()[0].worker, WorkerId{2}) << "the first is as idle, but too small";
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Scheduler, OpenEndedSequencesEndWhereTheirWorkerIsFull) {
  Simulation sim(1);
  sim.join({.kv_blocks = 5, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 40, .step_sequences_max = 5});
  for (uint64_t id = 1; id <= 2; ++id) {  // together they do not fit: one is sent back again and again
    SequenceRequest r = request(id, 6, 150);
    r.open_ended = true;
    sim.submit(std::move(r));
  }
  sim.finish_all();
  for (uint64_t id = 1; id <= 2; ++id) {
    EXPECT_EQ(sim.heard()[id].finished, FinishReason::kLength);
    EXPECT_EQ(sim.heard()[id].sampled.size(), 14u);
  }
  SequenceRequest whole = request(3, 20, 150);
  whole.open_ended = true;
  sim.submit(std::move(whole));
  EXPECT_TRUE(sim.heard()[3].failed.has_value()) << "no room for a single token more";
}

TEST(Scheduler, ASequenceThatKillsItsWorkersIsGivenUp) {
  Simulation sim(1);
  sim.submit(request(1, 8, 4));
  for (int death = 0; death < 3; ++death) {
    EXPECT_FALSE(sim.heard()[1].failed.has_value());
    sim.join(small_worker());
    sim.kill_one();
  }
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  sim.join(small_worker());
  sim.submit(request(2, 8, 4));
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[2].finished.has_value());
}

constexpr Nanos operator""_seconds(unsigned long long n) { return std::chrono::seconds(n); }

TEST(Scheduler, WhoWaitsForAWorkerThatNeverComesFails) {
  Simulation sim(1);  // waits 60 s
  sim.feed(Tick{100_seconds});
  sim.submit(request(1, 8, 4));
  sim.feed(Tick{130_seconds});
  sim.submit(request(2, 8, 4));
  sim.feed(Tick{160_seconds - Nanos(1)});
  EXPECT_FALSE(sim.heard()[1].failed.has_value());
  sim.feed(Tick{160_seconds});
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  EXPECT_EQ(sim.heard()[1].failed->code(), Code::kUnavailable);
  EXPECT_NE(sim.heard()[1].failed->message().find("no worker has been there for 60 s"), std::string::npos);
  EXPECT_FALSE(sim.heard()[2].failed.has_value()) << "it came later";
  sim.join(small_worker());
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[2].finished.has_value());
  EXPECT_EQ(sim.scheduler().waiting(), 0u);
}

TEST(Scheduler, AWorkerThatDiesLetsItsSequencesWaitAnew) {
  Simulation sim(1);
  sim.submit(request(1, 8, 4));
  sim.feed(Tick{59_seconds});
  sim.join(small_worker());
  sim.feed(Tick{100_seconds});
  sim.kill_one();
  sim.feed(Tick{159_seconds});
  EXPECT_FALSE(sim.heard()[1].failed.has_value()) << "the worker went at 100 s";
  sim.feed(Tick{160_seconds});
  EXPECT_TRUE(sim.heard()[1].failed.has_value());
}

TEST(Scheduler, WhoWaitsForRoomIsNotGivenUp) {
  Simulation sim(1);
  sim.join({.kv_blocks = 4, .kv_block_tokens = 4, .context_max = 16, .step_tokens_max = 16, .step_sequences_max = 1});
  sim.submit(request(1, 4, 4));
  sim.submit(request(2, 4, 4));
  sim.feed(Tick{10000_seconds});
  EXPECT_EQ(sim.scheduler().waiting(), 1u);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Scheduler, AFailedPlanIsTriedOneByOneSoThatOnlyTheCulpritFails) {
  Simulation sim(1);
  sim.join(small_worker());
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(request(id, 4, 3));
  while (sim.has_plans()) {
    SendPlan p = std::move(sim.plans().front());
    sim.plans().clear();
    const bool poisoned =
        std::any_of(p.plan.sequences.begin(), p.plan.sequences.end(), [](const auto& s) { return s.id.value == 2; });
    if (!poisoned) {
      sim.plans().push_back(std::move(p));
      sim.compute_one();
      continue;
    }
    PlanOutcome outcome;
    outcome.plan = p.plan.id;
    outcome.error = corrupt("expert 3 of layer 1 is bad");
    sim.feed(PlanDone{p.worker, std::move(outcome)});
  }
  EXPECT_EQ(sim.heard()[2].failed->message(), "expert 3 of layer 1 is bad");
  for (uint64_t id : {1, 3}) {
    EXPECT_TRUE(sim.heard()[id].finished.has_value());
    EXPECT_EQ(sim.heard()[id].sampled, expected_output(sim.heard()[id].request));
  }
}

TEST(Scheduler, AnAnswerThatDoesNotMatchItsPlanFailsTheSequenceOnly) {
  Simulation sim(1);
  sim.join(small_worker());
  sim.submit(request(1, 4, 3));
  PlanOutcome outcome;
  outcome.plan = sim.plans()[0].plan.id;
  sim.plans().clear();
  sim.feed(PlanDone{WorkerId{1}, outcome});  // says nothing of sequence 1
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  sim.feed(PlanDone{WorkerId{1}, outcome});  // and once more: stale
  sim.feed(PlanDone{WorkerId{9}, outcome});  // from nobody
  EXPECT_EQ(sim.scheduler().kv().held, 0u);
}

}  // namespace
}  // namespace moestro::orchestrator
