// Another version of the pack takes the place of the one before under requests.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr WorkerId kFirst{1};

/// Workers of version 1, each with a sequence of which a token has been given out, `sequence` = worker.
void begin_with(Simulation& sim, uint64_t workers) {
  sim.serve(1);
  for (uint64_t w = 0; w < workers; ++w) sim.join(small_worker(), 1);
  for (uint64_t id = 1; id <= workers; ++id) sim.submit(request(id, 4, 12));
  for (uint64_t i = 0; i < workers; ++i) sim.compute_one();
  while (std::ranges::any_of(sim.heard(), [](const auto& h) { return h.second.sampled.empty(); })) sim.compute_one();
}

TEST(Rollover, OneWorkerAfterTheOtherTakesTheNewVersion) {
  Simulation sim(1);
  begin_with(sim, 2);
  sim.serve(2);
  EXPECT_EQ(sim.away(), 0u) << "both have a sequence to end";
  sim.submit(request(3, 4, 2));
  sim.finish_all();
  EXPECT_EQ(sim.away(), 1u) << "the other serves";
  EXPECT_THAT(sim.heard()[3].versions, ElementsAre(1)) << "nobody has the new one yet";
  sim.submit(request(4, 4, 2));
  sim.finish_all();
  EXPECT_EQ(sim.away(), 1u) << "it is not gone as long as nobody has come back";
  ASSERT_TRUE(sim.bring_back_one());
  EXPECT_EQ(sim.away(), 1u) << "now the other goes";
  sim.submit(request(5, 4, 2));
  sim.finish_all();
  EXPECT_THAT(sim.heard()[5].versions, ElementsAre(2));
  ASSERT_TRUE(sim.bring_back_one());
  EXPECT_EQ(sim.away(), 0u);
  EXPECT_EQ(sim.scheduler().workers(), 2u);
  sim.expect_right_answers();
}

TEST(Rollover, WhatHasBegunEndsOnTheVersionBefore) {
  Simulation sim(1);
  begin_with(sim, 2);
  sim.serve(2);
  sim.join(small_worker(), 2);  // a worker that was restarted, say
  sim.submit(request(3, 4, 2));
  sim.finish_all();
  EXPECT_THAT(sim.heard()[1].versions, ElementsAre(1));
  EXPECT_THAT(sim.heard()[2].versions, ElementsAre(1));
  EXPECT_THAT(sim.heard()[3].versions, ElementsAre(2));
  EXPECT_EQ(sim.away(), 2u);
  sim.expect_right_answers();
}

TEST(Rollover, ADeadWorkersSequencesGoOnWhereTheirVersionIs) {
  Simulation sim(1);
  begin_with(sim, 2);
  sim.serve(2);
  sim.join(small_worker(), 2);
  sim.kill(kFirst);
  sim.finish_all();
  EXPECT_THAT(sim.heard()[1].versions, ElementsAre(1));
  EXPECT_EQ(sim.away(), 1u);
  sim.expect_right_answers();
}

TEST(Rollover, TheLastWorkerOfAVersionTakesWhatItHasBegunWithIt) {
  Simulation sim(1);
  begin_with(sim, 1);
  sim.submit(request(2, 30, 2));
  sim.submit(request(3, 60, 2));  // its prompt is not done yet
  sim.serve(2);
  sim.kill(kFirst);
  EXPECT_FALSE(sim.heard()[1].failed) << "as long as nobody is there";
  sim.join(small_worker(), 2);
  ASSERT_TRUE(sim.heard()[1].failed);
  EXPECT_EQ(sim.heard()[1].failed->code(), Code::kUnavailable);
  EXPECT_THAT(sim.heard()[1].failed->message(), HasSubstr("pack was replaced"));
  sim.finish_all();
  EXPECT_THAT(sim.heard()[2].versions, ElementsAre(2)) << "nothing of it had been given out";
  EXPECT_THAT(sim.heard()[3].versions, ElementsAre(2));
}

TEST(Rollover, TheOnlyWorkerEndsWhatItHasAndTheOthersWaitForItsReturn) {
  Simulation sim(1);
  begin_with(sim, 1);
  sim.serve(2);
  sim.submit(request(2, 4, 2));
  sim.finish_all();
  EXPECT_THAT(sim.heard()[1].versions, ElementsAre(1));
  EXPECT_EQ(sim.scheduler().waiting(), 1u);
  ASSERT_TRUE(sim.bring_back_one());
  sim.finish_all();
  EXPECT_THAT(sim.heard()[2].versions, ElementsAre(2));
  sim.expect_right_answers();
}

TEST(Rollover, WhoIsSentBackOnALeavingWorkerDoesNotWaitBehindTheNew) {
  Simulation sim(1);
  sim.serve(1);
  sim.join({.kv_blocks = 10, .kv_block_tokens = 4, .context_max = 40, .step_tokens_max = 40, .step_sequences_max = 5},
           1);
  sim.submit(request(1, 4, 30));
  sim.submit(request(2, 4, 30));  // both together do not fit
  for (int i = 0; i < 4; ++i) sim.compute_one();
  sim.serve(2);
  sim.submit(request(3, 4, 2));
  sim.finish_all();
  EXPECT_GT(sim.scheduler().preemptions(), 0u);
  ASSERT_TRUE(sim.bring_back_one());
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Rollover, AVersionThatNoWorkerCanServeCostsOneOfThem) {
  Simulation sim(1);
  begin_with(sim, 3);
  sim.serve(2);
  sim.finish_all();
  EXPECT_EQ(sim.away(), 1u);
  sim.feed(Tick{1h});
  sim.submit(request(7, 4, 2));
  sim.finish_all();
  EXPECT_EQ(sim.away(), 1u);
  EXPECT_THAT(sim.heard()[7].versions, ElementsAre(1));
  sim.serve(1);  // it was a mistake
  sim.join(small_worker(), 1);
  sim.submit(request(8, 4, 2));
  sim.finish_all();
  EXPECT_EQ(sim.away(), 1u) << "nobody has to go";
  sim.expect_right_answers();
}

TEST(Rollover, AWorkerThatComesWithTheVersionBeforeIsNotSentAwayAtOnce) {
  Simulation sim(1);
  sim.serve(2);
  sim.join(small_worker(), 1);
  EXPECT_EQ(sim.away(), 0u);
  sim.submit(request(1, 4, 2));
  sim.finish_all();
  EXPECT_THAT(sim.heard()[1].versions, ElementsAre(1)) << "better than none";
  sim.feed(Tick{10s});
  EXPECT_EQ(sim.away(), 1u);
}

TEST(Rollover, AVersionThatWillBeBackIsWaitedForAsAnyWorkerIs) {
  Simulation sim(1);
  begin_with(sim, 1);
  sim.feed(Tick{100s});
  sim.join(small_worker(), 2);  // from before this process began, say
  sim.kill(kFirst);
  sim.submit(request(2, 4, 2));
  sim.finish_all();
  EXPECT_THAT(sim.heard()[2].versions, ElementsAre(2)) << "it does not wait behind the other";
  EXPECT_FALSE(sim.heard()[1].failed);
  sim.feed(Tick{159s});
  EXPECT_FALSE(sim.heard()[1].failed);
  sim.join(small_worker(), 1);
  sim.finish_all();
  EXPECT_THAT(sim.heard()[1].versions, ElementsAre(1));
  sim.expect_right_answers();
}

TEST(Rollover, NoSequenceMixesVersionsWhateverHappens) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed, 24, seed % 2 == 0, 1 + seed % 2);
    if (seed % 3 == 0) sim.let_results_be_late();
    uint64_t served = 1, next_id = 1;
    Nanos now{0};
    sim.serve(served);
    for (uint64_t w = 0; w < 1 + seed % 3; ++w) sim.join(small_worker(), served);
    for (int event = 0; event < 300; ++event) {
      const uint64_t what = sim.roll(100);
      if (what < 25) sim.submit(sim.related_request(next_id++));
      else if (what < 27) sim.serve(++served);
      else if (what < 28 && served > 1) sim.serve(--served);
      else if (what < 33) sim.bring_back_one();
      else if (what < 35 && sim.workers() > 0) {
        sim.kill_one();
        sim.join(small_worker(), served);
      } else if (what < 36) sim.join(small_worker(), 1 + sim.roll(served));
      else if (what < 40) sim.feed(Tick{now += 500ms});
      else if (sim.has_plans()) sim.compute_one();
    }
    while (sim.bring_back_one() || sim.has_plans() || sim.scheduler().waiting() > 0) {
      if (sim.has_plans()) sim.compute_one();
      else sim.feed(Tick{now += 5s});
      ASSERT_LT(now, 10h) << sim.scheduler().waiting() << " wait for ever";
    }
    sim.feed(Tick{now += 20s});
    while (sim.bring_back_one()) sim.feed(Tick{now += 20s});
    EXPECT_EQ(sim.scheduler().kv().held, 0u);
    for (const auto& [id, h] : sim.heard()) {
      EXPECT_LE(h.versions.size(), 1u) << "sequence " << id;
      EXPECT_TRUE(h.finished || h.failed) << "sequence " << id << " never ended";
      if (h.finished) {
        EXPECT_EQ(h.sampled, expected_output(h.request)) << "sequence " << id;
      } else if (h.failed) {
        EXPECT_THAT(h.failed->message(),
                    ::testing::AnyOf(HasSubstr("pack was replaced"), HasSubstr("quarantined"),
                                     HasSubstr("no worker has been there"), HasSubstr("more than any worker's")));
      }
    }
  }
}

}  // namespace
}  // namespace moestro::orchestrator
