// Encoder-decoder models in the scheduler: sources, their memories, and targets among other sequences.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;

SequenceRequest with_source(uint64_t id, size_t source, int64_t tokens) {
  SequenceRequest r = request(id, 1, tokens);
  r.source = std::make_shared<const std::vector<TokenId>>(source, static_cast<TokenId>(id));
  return r;
}

WorkerLimits large_worker() {
  return {.kv_blocks = 100, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 512, .step_sequences_max = 8};
}

void expect_nothing_left(Simulation& sim) {
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.scheduler().waiting() + sim.scheduler().running(), 0u);
  EXPECT_EQ(sim.scheduler().kv().held, 0u) << "KV blocks leaked";
  EXPECT_EQ(sim.scheduler().kv().cached, 0u) << "what a target computed is nobody else's";
  EXPECT_TRUE(sim.all_is_released());
}

TEST(Sources, AnswersAreRightWhateverDiesOrFails) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed, 24, seed % 3 > 0, /*steps_in_flight=*/1 + seed % 2);
    sim.let_results_be_late();
    uint64_t next = 1, deaths = 0;
    for (int i = 0; i < 400; ++i) {
      const uint64_t what = sim.roll(100);
      if (what < 12 && next <= 40) {
        sim.submit(sim.request_with_source(next++));
      } else if (what < 16 && sim.workers() < 3) {
        sim.join(small_worker());
      } else if (what < 17 && sim.workers() > 0 && deaths < 2) {
        sim.kill_one();
        ++deaths;
      } else if (what < 19 && next > 1) {
        const uint64_t id = 1 + sim.roll(next - 1);
        if (!sim.heard()[id].finished && !sim.heard()[id].failed) sim.cancel(id);
      } else if (what < 21 && seed % 4 == 0 && sim.has_plans()) {
        sim.break_one();
      } else if (sim.has_plans()) {
        sim.compute_one();
      }
    }
    if (sim.workers() == 0) sim.join(small_worker());
    expect_nothing_left(sim);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Sources, MixWithPlainSequences) {  // as far as the scheduler goes, one worker could have both
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed, 24, true, 1 + seed % 2);
    sim.join(small_worker());
    for (uint64_t id = 1; id <= 30; ++id) {
      sim.submit(sim.roll(2) == 0 ? sim.request_with_source(id) : sim.related_request(id));
      for (uint64_t n = sim.roll(4); n > 0 && sim.has_plans(); --n) sim.compute_one();
    }
    sim.finish_all();
    sim.expect_right_answers();
    EXPECT_EQ(sim.scheduler().kv().held, 0u);
    if (::testing::Test::HasFailure()) return;
  }
}

/// Sequences 1 to n, of one source of 20 tokens.
void submit_choices(Simulation& sim, uint64_t n) {
  SequenceRequest r = with_source(1, 20, 6);
  for (uint64_t id = 1; id <= n; ++id) {
    r.id = SequenceId{id};
    sim.submit(r);
  }
}

TEST(Sources, ASourceIsEncodedWholeBeforeItsTarget) {
  Simulation sim(1, /*step_tokens=*/24, true, /*steps_in_flight=*/2);
  sim.join(large_worker());
  sim.submit(with_source(1, 20, 3));
  ASSERT_EQ(sim.plans().size(), 1u) << "the target waits for its memory";
  const PlannedSequence& source = sim.plans()[0].plan.sequences.at(0);
  EXPECT_TRUE(source.source);
  EXPECT_EQ(source.tokens.size(), 20u);
  EXPECT_EQ(source.memory.size(), 5u);
  EXPECT_FALSE(source.sample);
  const auto memory = source.memory;
  sim.compute_one();
  const PlannedSequence& target = sim.plans().at(0).plan.sequences.at(0);
  EXPECT_FALSE(target.source);
  EXPECT_EQ(target.memory, memory);
  EXPECT_EQ(target.memory_tokens, 20u);
  EXPECT_TRUE(target.sample);
  sim.compute_one();
  EXPECT_TRUE(sim.plans().at(0).plan.sequences.at(0).memory.empty()) << "it is said once";
  expect_nothing_left(sim);
}

TEST(Sources, ChoicesShareAMemory) {
  Simulation sim(1);
  sim.join(large_worker());
  submit_choices(sim, 3);
  ASSERT_EQ(sim.plans().size(), 1u);
  EXPECT_EQ(sim.plans()[0].plan.sequences.size(), 1u) << "one encodes it";
  EXPECT_EQ(sim.scheduler().kv().held, 5u + 3u);
  sim.cancel(1);  // the others want it all the same
  while (sim.computed_tokens() == 0 || sim.plans().front().plan.sequences.front().source) sim.compute_one();
  ASSERT_EQ(sim.plans().at(0).plan.sequences.size(), 2u);
  EXPECT_EQ(sim.plans()[0].plan.sequences[0].memory, sim.plans()[0].plan.sequences[1].memory);
  expect_nothing_left(sim);
}

/// The worker whose next plan has the sequence.
WorkerId worker_of(Simulation& sim, uint64_t id) {
  while (sim.has_plans()) {
    for (const SendPlan& p : sim.plans())
      if (std::ranges::find(p.plan.sequences, SequenceId{id}, &PlannedSequence::id) != p.plan.sequences.end())
        return p.worker;
    sim.compute_one();
  }
  return WorkerId{0};
}

TEST(Sources, ASourceIsLoadOnce) {
  Simulation sim(1, /*step_tokens=*/64);
  sim.join(large_worker());
  submit_choices(sim, 3);  // a source of 20 tokens, and three targets that begin
  const WorkerId first = sim.plans().at(0).worker;
  sim.join(large_worker());
  sim.submit(with_source(4, 40, 6));
  ASSERT_NE(worker_of(sim, 4), first);
  sim.submit(with_source(5, 8, 6));
  EXPECT_EQ(worker_of(sim, 5), first) << "26 tokens are fewer than 42";
  expect_nothing_left(sim);
}

TEST(Sources, ASourceIsPendingOnce) {
  Simulation sim(1, /*step_tokens=*/64);
  WorkerLimits limits = large_worker();
  limits.step_sequences_max = 4;
  sim.join(limits);
  const auto of_key = [](std::string key, SequenceRequest r) {
    r.flow = std::move(key);
    return r;
  };
  SequenceRequest choice = of_key("a", with_source(1, 20, 6));
  for (uint64_t id = 1; id <= 3; ++id) {
    choice.id = SequenceId{id};
    sim.submit(choice);
  }
  sim.submit(of_key("b", with_source(4, 50, 6)));
  sim.submit(of_key("b", with_source(5, 8, 6)));  // these two wait
  sim.submit(of_key("a", with_source(6, 8, 6)));
  limits.step_sequences_max = 1;
  sim.join(limits);
  ASSERT_EQ(sim.plans().size(), 2u);
  EXPECT_EQ(sim.plans()[1].plan.sequences.at(0).id, SequenceId{6}) << "20 tokens under way, 23 to come: less than 51";
  expect_nothing_left(sim);
}

TEST(Sources, ASourceIsChargedOnce) {
  Simulation sim(1, /*step_tokens=*/64);
  WorkerLimits limits = large_worker();
  limits.step_sequences_max = 1;  // choices have the source encoded one by one
  sim.join(limits);
  SequenceRequest choice = with_source(1, 40, 2);
  choice.flow = "a";
  for (uint64_t id = 1; id <= 3; ++id) {
    choice.id = SequenceId{id};
    sim.submit(choice);
  }
  for (uint64_t id = 4; id <= 7; ++id) {
    SequenceRequest other = with_source(id, 30, 2);
    other.flow = "b";
    sim.submit(other);
  }
  std::vector<uint64_t> encoded;
  while (sim.has_plans()) {
    const PlannedSequence& s = sim.plans()[0].plan.sequences.at(0);
    if (s.source) encoded.push_back(s.id.value);
    sim.compute_one();
  }
  EXPECT_EQ(encoded, (std::vector<uint64_t>{1, 4, 2, 3, 5, 6, 7}));
  expect_nothing_left(sim);
}

TEST(Sources, WhatIsBeingEncodedStaysForTheOtherChoices) {
  Simulation sim(1);
  sim.join(large_worker());
  submit_choices(sim, 2);
  sim.cancel(1);
  ASSERT_EQ(sim.plans().size(), 1u) << "it is not encoded a second time";
  sim.compute_one();
  EXPECT_FALSE(sim.plans().at(0).plan.sequences.at(0).source);
  expect_nothing_left(sim);
}

TEST(Sources, ASourceThatFailsFailsAllChoices) {
  for (const bool as_a_whole : {false, true}) {
    Simulation sim(1);
    sim.join(large_worker());
    submit_choices(sim, 3);
    PlanOutcome outcome;
    outcome.plan = sim.plans().at(0).plan.id;
    SequenceOutcome source;
    source.id = SequenceId{1};
    (as_a_whole ? outcome.error : source.error) = internal_error("broke down");
    if (!as_a_whole) outcome.sequences.push_back(std::move(source));
    const WorkerId worker = sim.plans()[0].worker;
    sim.plans().clear();
    sim.feed(PlanDone{worker, std::move(outcome), Nanos(0)});
    EXPECT_TRUE(sim.plans().empty()) << "it is not encoded again";
    for (uint64_t id = 1; id <= 3; ++id) EXPECT_TRUE(sim.heard()[id].failed.has_value());
    EXPECT_EQ(sim.scheduler().kv().held, 0u);
  }
}

TEST(Sources, ALongSourceIsNotKeptWaitingByDecodes) {
  Simulation sim(1, /*step_tokens=*/24);
  sim.join(large_worker());
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(with_source(id, 8, 60));
  for (int i = 0; i < 4; ++i) sim.compute_one();
  for (uint64_t id = 4; id <= 6; ++id) sim.submit(with_source(id, 24, 10));  // no room beside a single decode
  bool led = false;
  size_t encoded = 0;
  for (int step = 0; step < 10; ++step) {
    ASSERT_EQ(sim.plans().size(), 1u);
    const bool leads = sim.plans()[0].plan.sequences.front().source;
    EXPECT_FALSE(led && leads) << "those that decode are in every second plan";
    encoded += leads;
    led = leads;
    sim.compute_one();
  }
  EXPECT_EQ(encoded, 3u);
  expect_nothing_left(sim);
}

/// Three sequences decode, and `more` come, whose sources find no room beside a decode. The order in which those are
/// encoded within `steps`.
std::vector<uint64_t> encoded_beside_decodes(Simulation& sim, const std::vector<SequenceRequest>& more, int steps) {
  WorkerLimits limits = large_worker();
  limits.kv_blocks = 400;
  limits.step_sequences_max = 16;
  sim.join(limits);
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(with_source(id, 8, 150));
  for (int i = 0; i < 4; ++i) sim.compute_one();
  for (const SequenceRequest& r : more) sim.submit(r);
  std::vector<uint64_t> encoded;
  for (int step = 0; step < steps; ++step) {
    const PlannedSequence& first = sim.plans().at(0).plan.sequences.front();
    if (first.source) encoded.push_back(first.id.value);
    sim.compute_one();
  }
  return encoded;
}

TEST(Sources, ThoseOfBatchesLeadOnlyInTheirTurn) {
  std::vector<SequenceRequest> more;
  for (uint64_t id = 4; id <= 11; ++id) {
    more.push_back(with_source(id, 24, 2));
    more.back().background = true;
    more.back().flow = "batch_1";
  }
  more.push_back(with_source(12, 24, 2));  // the last to come, and somebody reads it
  Simulation sim(1, /*step_tokens=*/24);
  const auto encoded = encoded_beside_decodes(sim, more, 100);
  ASSERT_FALSE(encoded.empty());
  EXPECT_EQ(encoded.front(), 12u);
  EXPECT_GE(encoded.size(), 1u + 2u) << "batches keep their share";
  EXPECT_LE(encoded.size(), 1u + 6u) << "one step of 17";
  expect_nothing_left(sim);
}

TEST(Sources, KeysTakeTurnsInLeading) {
  std::vector<SequenceRequest> more;
  for (uint64_t id = 4; id <= 7; ++id) {
    more.push_back(with_source(id, 24, 2));
    more.back().flow = id < 7 ? "a" : "b";
  }
  Simulation sim(1, /*step_tokens=*/24);
  const auto encoded = encoded_beside_decodes(sim, more, 20);
  EXPECT_EQ(encoded, (std::vector<uint64_t>{4, 7, 5, 6}));
  expect_nothing_left(sim);
}

TEST(Sources, WhatCanNeverFitIsRefused) {
  Simulation sim(1, /*step_tokens=*/24);
  sim.join(large_worker());
  sim.submit(with_source(1, 25, 3));
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  EXPECT_THAT(sim.heard()[1].failed->message(), HasSubstr("25 tokens"));
  EXPECT_THAT(sim.heard()[1].failed->message(), HasSubstr("--step-tokens"));
  sim.submit(with_source(2, 24, 377));
  ASSERT_TRUE(sim.heard()[2].failed.has_value());
  EXPECT_THAT(sim.heard()[2].failed->message(), HasSubstr("--kv-tokens"));
  sim.heard().clear();
  sim.submit(with_source(3, 24, 10));
  expect_nothing_left(sim);
}

TEST(Sources, OpenEndedTargetsEndWhereTheirMemoryLeavesNoRoom) {
  Simulation sim(1, /*step_tokens=*/24);
  WorkerLimits limits = large_worker();
  limits.kv_blocks = 10;
  sim.join(limits);
  SequenceRequest r = with_source(1, 16, 1000);
  r.open_ended = true;
  sim.submit(r);
  sim.finish_all();
  EXPECT_EQ(sim.heard()[1].finished, FinishReason::kLength);
  EXPECT_EQ(sim.heard()[1].sampled.size(), 6u * 4 - 1);
  EXPECT_EQ(sim.scheduler().kv().held, 0u);
}

TEST(Sources, ASequenceThatIsSentBackIsEncodedAgain) {
  Simulation sim(1, /*step_tokens=*/24);
  WorkerLimits limits = large_worker();
  limits.kv_blocks = 16;
  sim.join(limits);
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(with_source(id, 12, 24));
  sim.finish_all();
  EXPECT_GT(sim.scheduler().preemptions(), 0u);
  expect_nothing_left(sim);
}

TEST(Sources, ASourceThatKillsItsWorkersIsGivenUp) {
  Simulation sim(1);
  for (uint64_t id = 1; id <= 2; ++id) sim.submit(with_source(id, 12, 4));
  for (int i = 0; i < 3; ++i) {
    sim.join(large_worker());
    const auto& sequences = sim.plans().at(0).plan.sequences;
    ASSERT_EQ(sequences.size(), i == 0 ? 2u : 1u) << "suspects run alone";
    ASSERT_TRUE(sequences[0].source);
    sim.kill_one();
  }
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  EXPECT_THAT(sim.heard()[1].failed->message(), HasSubstr("quarantined"));
  sim.heard().erase(1);
  sim.join(large_worker());
  expect_nothing_left(sim);
}

TEST(Sources, DeathsAtTheTargetAndAtItsSourceAreOnesOfOneRequest) {
  Simulation sim(1);
  sim.submit(with_source(1, 12, 4));
  for (int i = 0; i < 2; ++i) {
    sim.join(large_worker());
    sim.compute_one();
    ASSERT_FALSE(sim.plans().at(0).plan.sequences.at(0).source);
    sim.kill_one();
  }
  EXPECT_FALSE(sim.heard()[1].failed.has_value());
  sim.join(large_worker());
  ASSERT_TRUE(sim.plans().at(0).plan.sequences.at(0).source) << "it is encoded again";
  sim.kill_one();
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  EXPECT_THAT(sim.heard()[1].failed->message(), HasSubstr("quarantined: 3 workers died"));
}

TEST(Sources, WhatIsEncodedForOneThatHasLeftIsCleared) {
  Simulation sim(1);
  for (uint64_t id = 1; id <= 2; ++id) sim.submit(with_source(id, 12, 4));
  const auto shared = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>(12, 7));
  for (uint64_t id = 3; id <= 4; ++id) {
    SequenceRequest choice = with_source(id, 12, 4);
    choice.source = shared;
    sim.submit(std::move(choice));
  }
  for (uint64_t id = 1; id <= 2; ++id) sim.cancel(id);
  sim.join(large_worker());
  ASSERT_TRUE(sim.plans().at(0).plan.sequences.at(0).source);
  sim.kill_one();
  sim.join(large_worker());
  ASSERT_EQ(sim.plans().at(0).plan.sequences.at(0).id, SequenceId{3}) << "alone";
  sim.cancel(3);
  sim.compute_one();
  ASSERT_EQ(sim.plans().at(0).plan.sequences.at(0).id, SequenceId{4});
  sim.kill_one();
  sim.join(large_worker());
  EXPECT_FALSE(sim.heard()[4].failed.has_value()) << "its source was encoded in between";
  expect_nothing_left(sim);
}

TEST(Sources, NothingIsSentBehindASuspectThatHasLeft) {
  Simulation sim(1, /*step_tokens=*/24, true, /*steps_in_flight=*/2);
  sim.join(large_worker());
  sim.submit(with_source(1, 12, 4));
  sim.kill_one();
  sim.join(large_worker());
  sim.submit(with_source(2, 12, 4));
  ASSERT_EQ(sim.plans().size(), 1u);
  ASSERT_EQ(sim.plans()[0].plan.sequences.at(0).id, SequenceId{1});
  sim.cancel(1);
  EXPECT_EQ(sim.plans().size(), 1u) << "its worker may die of it still";
  expect_nothing_left(sim);
}

}  // namespace
}  // namespace moestro::orchestrator
