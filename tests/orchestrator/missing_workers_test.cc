// Sequences that only a worker can hold that has died, or attaches anew.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr WorkerId kLongOnes{1};

WorkerLimits roomy_worker() {
  WorkerLimits limits = small_worker();
  limits.kv_blocks = 100, limits.context_max = 400;
  return limits;
}

/// More than a small worker holds.
SequenceRequest long_request(uint64_t id) { return request(id, 150, 8); }

/// A large worker, which has begun with a large request, beside a small one.
void begin_a_long_one(Simulation& sim) {
  sim.feed(Tick{100s});
  sim.join(roomy_worker());
  sim.join(small_worker());
  sim.submit(long_request(1));
  sim.compute_one();
}

TEST(MissingWorkers, WhatOnlyADeadWorkerCanHoldWaitsForIt) {
  Simulation sim(1);
  begin_a_long_one(sim);
  sim.kill(kLongOnes);
  EXPECT_FALSE(sim.heard()[1].failed);
  sim.submit(long_request(2));
  sim.submit(request(3, 8, 4));
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[3].finished) << "nobody waits behind those";
  sim.feed(Tick{159s});
  sim.join(roomy_worker());
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[1].finished);
  EXPECT_TRUE(sim.heard()[2].finished);
  EXPECT_EQ(sim.scheduler().waiting(), 0u);
  sim.expect_right_answers();
}

TEST(MissingWorkers, WhoeverWaitsLongerThanForAnyWorkerIsSentAway) {
  Simulation sim(1);
  begin_a_long_one(sim);
  sim.kill(kLongOnes);
  sim.feed(Tick{130s});
  sim.submit(long_request(2));
  sim.feed(Tick{160s - Nanos(1)});
  EXPECT_FALSE(sim.heard()[1].failed);
  sim.feed(Tick{160s});
  for (const uint64_t id : {1, 2}) {
    ASSERT_TRUE(sim.heard()[id].failed) << id;
    EXPECT_EQ(sim.heard()[id].failed->code(), Code::kUnavailable);
    EXPECT_THAT(sim.heard()[id].failed->message(),
                HasSubstr("no worker that can hold this request has come back within 60 s"));
  }
  sim.submit(long_request(3));
  ASSERT_TRUE(sim.heard()[3].failed) << "it is not expected any more";
  EXPECT_EQ(sim.heard()[3].failed->code(), Code::kInvalidArgument);
}

TEST(MissingWorkers, WhatNoneCouldHoldFailsAtOnce) {
  Simulation sim(1);
  begin_a_long_one(sim);
  sim.kill(kLongOnes);
  sim.submit(request(2, 500, 8));
  ASSERT_TRUE(sim.heard()[2].failed);
  EXPECT_EQ(sim.heard()[2].failed->code(), Code::kInvalidArgument);
}

TEST(MissingWorkers, OneThatIsBackSmallerIsStillMissed) {
  Simulation sim(1);
  begin_a_long_one(sim);
  sim.kill(kLongOnes);
  sim.join(small_worker());
  sim.finish_all();
  EXPECT_FALSE(sim.heard()[1].failed);
  WorkerLimits larger = roomy_worker();
  larger.kv_blocks += 7;
  sim.join(larger);
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[1].finished);
  sim.expect_right_answers();
}

TEST(MissingWorkers, AVersionIsRolledOutOverUnequalWorkers) {
  Simulation sim(1);
  sim.serve(1);
  sim.join(roomy_worker(), 1);
  sim.join(small_worker(), 1);
  sim.serve(2);
  while (sim.away() == 0) sim.feed(Tick{200s});
  sim.submit(long_request(1));
  sim.submit(request(2, 8, 4));
  sim.finish_all();
  EXPECT_FALSE(sim.heard()[1].failed) << "whichever is away, the large one is here or will be";
  for (int i = 0; i < 4 && !sim.heard()[1].finished; ++i) {
    sim.bring_back_one();
    sim.finish_all();
  }
  EXPECT_TRUE(sim.heard()[1].finished);
  EXPECT_TRUE(sim.heard()[2].finished);
  sim.expect_right_answers();
}

TEST(MissingWorkers, WhatBeganWithAnEarlierVersionIsSentAwayByName) {
  Simulation sim(1);
  sim.serve(1);
  sim.join(roomy_worker(), 1);
  sim.join(small_worker(), 1);
  sim.submit(long_request(1));
  sim.submit(request(2, 60, 30));  // keeps the small one
  while (sim.heard()[1].sampled.empty()) sim.compute_one();
  sim.serve(2);
  sim.kill(kLongOnes);
  ASSERT_TRUE(sim.heard()[1].failed);
  EXPECT_EQ(sim.heard()[1].failed->code(), Code::kUnavailable);
  EXPECT_THAT(sim.heard()[1].failed->message(), HasSubstr("pack was replaced"));
}

TEST(MissingWorkers, OneThatIsBackWithAnEarlierVersionIsWaitedForOn) {
  Simulation sim(1);
  sim.feed(Tick{100s});
  sim.serve(2);
  sim.join(roomy_worker(), 2);
  sim.join(small_worker(), 2);
  sim.submit(long_request(1));
  while (sim.heard()[1].sampled.empty()) sim.compute_one();
  sim.kill(kLongOnes);
  sim.join(roomy_worker(), 1);
  EXPECT_FALSE(sim.heard()[1].failed);
  for (int i = 0; i < 30 && sim.away() == 0; ++i) sim.feed(Tick{Nanos(101s) + i * 1s});
  ASSERT_TRUE(sim.bring_back_one());
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[1].finished);
  sim.expect_right_answers();
}

TEST(MissingWorkers, TheyKeepTheirOrder) {
  Simulation sim(1);
  sim.feed(Tick{100s});
  sim.join(roomy_worker());
  sim.join(small_worker());
  sim.kill(kLongOnes);
  for (const uint64_t id : {1, 2, 3}) sim.submit(request(id, 300, 8));  // one at a time
  sim.join(roomy_worker());
  std::vector<uint64_t> ended;
  while (sim.has_plans()) {
    sim.compute_one();
    for (auto& [id, heard] : sim.heard())
      if (heard.finished && std::ranges::find(ended, id) == ended.end()) ended.push_back(id);
  }
  EXPECT_THAT(ended, ::testing::ElementsAre(1, 2, 3));
}

TEST(MissingWorkers, ASourceThatNeedsTheLargeOnesStepWaitsToo) {
  Simulation sim(1, /*step_tokens=*/200);
  sim.feed(Tick{100s});
  WorkerLimits large = roomy_worker();
  large.step_tokens_max = 200;
  sim.join(large);
  sim.join(small_worker());
  SequenceRequest r = request(1, 1, 4);
  r.source = std::make_shared<const std::vector<TokenId>>(90, 7);
  sim.submit(r);
  sim.kill(kLongOnes);
  EXPECT_FALSE(sim.heard()[1].failed);
  sim.join(large);
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[1].finished);
}

/// Workers of two sizes die and come back; nobody fails whom one of them could hold, and all is right in the end.
TEST(MissingWorkers, RandomHistories) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed);
    sim.feed(Tick{100s});
    sim.join(roomy_worker());
    sim.join(small_worker());
    uint64_t next = 1;
    int kills_left = 2;  // at one more a request is quarantined
    for (int step = 0; step < 200; ++step) {
      const uint64_t what = sim.roll(10);
      if (what < 2) sim.submit(sim.roll(3) == 0 ? long_request(next) : request(next, 4 + sim.roll(40), 4)), ++next;
      else if (what == 2 && kills_left > 0 && sim.workers() > 0) sim.kill_one(), --kills_left;
      else if (what == 3 && sim.workers() < 2) sim.join(sim.roll(2) == 0 ? roomy_worker() : small_worker());
      else if (sim.has_plans()) sim.compute_one();
    }
    sim.join(roomy_worker());
    sim.finish_all();
    for (auto& [id, heard] : sim.heard()) EXPECT_TRUE(heard.finished) << id;
    EXPECT_EQ(sim.scheduler().waiting(), 0u);
    sim.expect_right_answers();
  }
}

}  // namespace
}  // namespace moestro::orchestrator
