#include "services/cli/up/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

namespace moestro::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kStore = 0, kWorker0 = 1, kWorker1 = 2, kOrchestrator = 3;

/// One store, two workers, one orchestrator, and a clock moved by hand. Actions are written as short words.
class SupervisorTest : public testing::Test {
 protected:
  std::vector<std::string> feed(const Event& event) {
    std::vector<std::string> words;
    for (const Action& action : machine_.step(event, now_)) words.push_back(std::visit(Words{*this}, action));
    std::erase(words, "");
    return words;
  }
  std::vector<std::string> after(Nanos time) {
    now_ += time;
    return feed(TimePassed{});
  }
  std::vector<std::string> ends(size_t program, int code = 1) {
    return feed(ProgramEnded{program, {false, code, {}}});
  }
  void start_all() {
    feed(TimePassed{});
    feed(StoreListens{});
    feed(HealthSeen{true, ""});
    now_ += seconds(60);
  }

  struct Words {
    SupervisorTest& test;
    std::string operator()(const StartProgram& a) { return "start " + std::to_string(a.program); }
    std::string operator()(const SignalProgram& a) {
      return (a.signal == SIGKILL ? "kill " : "term ") + std::to_string(a.program);
    }
    std::string operator()(const SayReady&) { return "ready"; }
    std::string operator()(const Say& a) { return test.said_.push_back(a.text), std::string(); }
    std::string operator()(const Finish& a) {
      return test.finish_ = a, std::string("finish ") + std::to_string(a.exit_code);
    }
  };

  Nanos now_{seconds(1000)};
  std::vector<std::string> said_;
  Finish finish_;
  Supervisor machine_{{{"store", Role::kStore},
                       {"worker-0", Role::kWorker},
                       {"worker-1", Role::kWorker},
                       {"orchestrator", Role::kOrchestrator}},
                      {}};
};

TEST_F(SupervisorTest, WorkersStartWhenTheStoreListens) {
  EXPECT_THAT(feed(TimePassed{}), ElementsAre("start 0", "start 3"));
  EXPECT_TRUE(machine_.waits_for_store());
  EXPECT_THAT(after(seconds(1)), IsEmpty());
  EXPECT_THAT(feed(StoreListens{}), ElementsAre("start 1", "start 2"));
  EXPECT_FALSE(machine_.waits_for_store());
  EXPECT_THAT(feed(HealthSeen{false, "no worker"}), IsEmpty());
  EXPECT_THAT(feed(HealthSeen{true, ""}), ElementsAre("ready"));
  EXPECT_THAT(feed(HealthSeen{true, ""}), IsEmpty());
}

TEST_F(SupervisorTest, ProgressIsReportedUntilItServes) {
  feed(TimePassed{});
  EXPECT_EQ(machine_.wake_at(), now_ + seconds(10));
  after(seconds(10));
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_[0], HasSubstr("waiting for the store"));
  feed(StoreListens{});
  feed(HealthSeen{false, "no worker"});
  after(seconds(10));
  EXPECT_THAT(said_.at(1), HasSubstr("/health, which says: no worker"));
  feed(HealthSeen{true, ""});
  after(seconds(100));
  EXPECT_EQ(said_.size(), 2u);
  EXPECT_EQ(machine_.wake_at(), std::nullopt);
}

TEST_F(SupervisorTest, AWorkerThatDiesIsStartedAgainAfterAPause) {
  start_all();
  EXPECT_THAT(feed(ProgramEnded{kWorker1, {true, SIGKILL, {}}}), IsEmpty());
  EXPECT_THAT(said_.at(0), HasSubstr("worker-1 ended with signal 9 (Killed); starting it again in 0.1 s"));
  EXPECT_EQ(machine_.wake_at(), now_ + milliseconds(100));
  EXPECT_THAT(after(milliseconds(99)), IsEmpty());
  EXPECT_THAT(after(milliseconds(1)), ElementsAre("start 2"));
}

TEST_F(SupervisorTest, PausesDoubleAndTheFifthDeathInARowOfWhatNeverServedEndsTheRun) {
  feed(TimePassed{});
  feed(StoreListens{});
  for (const int pause : {100, 200, 400, 800}) {
    EXPECT_THAT(ends(kWorker0), IsEmpty());
    EXPECT_EQ(machine_.wake_at(), now_ + milliseconds(pause));
    EXPECT_THAT(after(milliseconds(pause)), ElementsAre("start 1"));
  }
  EXPECT_THAT(ends(kWorker0), ElementsAre("term 3"));
  EXPECT_THAT(ends(kOrchestrator, 0), ElementsAre("term 2"));
  EXPECT_THAT(ends(kWorker1, 0), ElementsAre("term 0"));
  EXPECT_THAT(ends(kStore, 0), ElementsAre("finish 1"));
  EXPECT_EQ(finish_.message, "worker-0 ended with exit 1, 5 times in a row");
  EXPECT_EQ(finish_.culprit, kWorker0);
}

TEST_F(SupervisorTest, AProgramThatServedAWhileHasItsDeathsForgiven) {
  start_all();
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(ends(kWorker0), IsEmpty());
    EXPECT_THAT(after(milliseconds(100)), ElementsAre("start 1"));
    feed(HealthSeen{true, ""});
    after(seconds(5));
  }
}

TEST_F(SupervisorTest, WhatHasServedIsNeverGivenUp) {
  start_all();
  feed(HealthSeen{true, ""});
  for (const size_t program : {kOrchestrator, kWorker0, kStore}) {
    Nanos pause = milliseconds(100);
    for (int i = 0; i < 20; ++i) {
      EXPECT_THAT(feed(ProgramEnded{program, {true, SIGKILL, {}}}), IsEmpty()) << "death " << i << " of " << program;
      EXPECT_EQ(machine_.wake_at(), now_ + pause);
      EXPECT_THAT(after(pause), ElementsAre("start " + std::to_string(program)));
      if (program == kStore) feed(StoreListens{});
      pause = std::min<Nanos>(2 * pause, seconds(5));
    }
  }
  EXPECT_EQ(finish_.exit_code, 0);
}

TEST_F(SupervisorTest, WhatHasServedAndNowSaysThatAStartCannotHelpIsTriedAtTheLongestPause) {
  start_all();
  feed(HealthSeen{true, ""});
  EXPECT_THAT(feed(ProgramEnded{kOrchestrator, {false, 2, "the port is taken"}}), IsEmpty());
  EXPECT_EQ(said_.back(), "orchestrator ended with exit 2: the port is taken; starting it again in 5.0 s");
  EXPECT_THAT(after(seconds(5)), ElementsAre("start 3"));
}

TEST_F(SupervisorTest, OneWorkerOfSeveralThatIsBrokenFromTheStartHasNotServedWithTheOthers) {
  feed(TimePassed{});
  feed(StoreListens{});
  feed(HealthSeen{true, ""});  // worker-1 does
  for (const int pause : {100, 200, 400, 800}) {
    EXPECT_THAT(ends(kWorker0), IsEmpty());
    EXPECT_THAT(after(milliseconds(pause)), ElementsAre("start 1"));
    feed(HealthSeen{true, ""});
  }
  EXPECT_THAT(ends(kWorker0), ElementsAre("term 3"));
}

TEST_F(SupervisorTest, SlowDeathsWithoutServiceCountToo) {
  feed(TimePassed{});
  for (int i = 0; i < 4; ++i) {
    after(seconds(60));
    EXPECT_THAT(ends(kStore), IsEmpty());
    EXPECT_THAT(after(seconds(5)), ElementsAre("start 0"));
  }
  EXPECT_THAT(ends(kStore), ElementsAre("term 3"));
  EXPECT_THAT(ends(kOrchestrator, 0), ElementsAre("finish 1"));
}

TEST_F(SupervisorTest, AWorkerThatGoesWithTheStoreIsNotBlamedAndWaitsForIt) {
  start_all();
  for (int i = 0; i < 10; ++i) {
    ends(kStore);
    EXPECT_TRUE(ends(kWorker0).empty());
    EXPECT_TRUE(ends(kWorker1).empty());
    EXPECT_THAT(said_.back(), HasSubstr("when the store is back"));
    EXPECT_THAT(after(seconds(2)), ElementsAre("start 0"));
    EXPECT_THAT(feed(StoreListens{}), ElementsAre("start 1", "start 2"));
    feed(HealthSeen{true, ""});
    after(seconds(6));
  }
}

TEST_F(SupervisorTest, AWorkerThatNoticesTheLossLateIsNotBlamedEither) {
  start_all();
  for (int i = 0; i < 10; ++i) {
    ends(kStore);
    EXPECT_THAT(after(milliseconds(500)), ElementsAre("start 0"));
    feed(StoreListens{});
    after(milliseconds(50));
    EXPECT_TRUE(ends(kWorker0).empty())
        << "the store's own deaths are forgiven by what it served, the worker's do not count";
    EXPECT_THAT(after(milliseconds(100)), ElementsAre("start 1"));
    feed(HealthSeen{true, ""});
    after(seconds(6));
  }
}

TEST_F(SupervisorTest, WhatAnotherStartCannotMendIsNotTriedAgain) {
  feed(TimePassed{});
  EXPECT_THAT(ends(kOrchestrator, 2), ElementsAre("term 0"));
  EXPECT_THAT(ends(kStore, 0), ElementsAre("finish 1"));
  EXPECT_EQ(finish_.message, "orchestrator ended with exit 2, which another start cannot mend");
}

TEST_F(SupervisorTest, AProgramsOwnWordsSayWhy) {
  feed(TimePassed{});
  feed(ProgramEnded{kStore, {false, 1, "no memory"}});
  EXPECT_EQ(said_.back(), "store ended with exit 1: no memory; starting it again in 0.1 s");
  after(seconds(1));
  EXPECT_THAT(feed(ProgramEnded{kStore, {false, 2, "no pack at /p"}}), ElementsAre("term 3"));
  ends(kOrchestrator, 0);
  EXPECT_EQ(finish_.message, "store ended with exit 2, which another start cannot mend: no pack at /p");
  EXPECT_EQ(finish_.culprit, std::nullopt) << "its log has nothing to add";
}

TEST_F(SupervisorTest, StopDrainsInOrder) {
  start_all();
  EXPECT_THAT(feed(StopAsked{}), ElementsAre("term 3"));
  EXPECT_THAT(after(seconds(29)), IsEmpty());
  EXPECT_THAT(ends(kOrchestrator, 0), ElementsAre("term 1", "term 2"));
  EXPECT_THAT(ends(kWorker1, 0), IsEmpty());
  EXPECT_THAT(ends(kWorker0, 0), ElementsAre("term 0"));
  EXPECT_THAT(ends(kStore, 0), ElementsAre("finish 0"));
  EXPECT_THAT(after(seconds(100)), IsEmpty());
}

TEST_F(SupervisorTest, WhatDoesNotEndInTimeIsKilled) {
  start_all();
  feed(StopAsked{});
  EXPECT_EQ(machine_.wake_at(), now_ + seconds(30));
  EXPECT_THAT(after(seconds(30)), ElementsAre("kill 3"));
  EXPECT_THAT(feed(ProgramEnded{kOrchestrator, {true, SIGKILL, {}}}), ElementsAre("term 1", "term 2"));
  EXPECT_THAT(after(seconds(10)), ElementsAre("kill 1", "kill 2"));
}

TEST_F(SupervisorTest, ASecondStopKillsEverythingOnce) {
  start_all();
  feed(StopAsked{});
  EXPECT_THAT(feed(StopAsked{}), ElementsAre("kill 0", "kill 1", "kill 2", "kill 3"));
  EXPECT_THAT(feed(StopAsked{}), IsEmpty());
  for (const size_t program : {kStore, kWorker0, kWorker1})
    EXPECT_THAT(feed(ProgramEnded{program, {true, SIGKILL, {}}}), IsEmpty());
  EXPECT_THAT(feed(ProgramEnded{kOrchestrator, {true, SIGKILL, {}}}), ElementsAre("finish 0"));
}

TEST_F(SupervisorTest, NothingStartsWhileStopping) {
  start_all();
  ends(kWorker0);
  EXPECT_THAT(feed(StopAsked{}), ElementsAre("term 3"));
  EXPECT_THAT(after(seconds(20)), IsEmpty());
  EXPECT_THAT(feed(StoreListens{}), IsEmpty());
  EXPECT_FALSE(machine_.waits_for_health());
}

TEST_F(SupervisorTest, StopBeforeAnythingServes) {
  feed(TimePassed{});
  EXPECT_THAT(feed(StopAsked{}), ElementsAre("term 3"));
  EXPECT_THAT(ends(kOrchestrator, 0), ElementsAre("term 0"));
  EXPECT_THAT(ends(kStore, 0), ElementsAre("finish 0"));
}

TEST_F(SupervisorTest, WhatDidNotCatchTheStopYetIsNoFailure) {
  feed(TimePassed{});
  EXPECT_THAT(ends(kStore, 2), ElementsAre("term 3"));
  EXPECT_THAT(feed(ProgramEnded{kOrchestrator, {true, SIGTERM, {}}}), ElementsAre("finish 1"));
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(SupervisorTest, WhatDiesOfAnotherSignalWhileStoppingIsSaid) {
  start_all();
  feed(StopAsked{});
  feed(ProgramEnded{kWorker0, {true, SIGTERM, {}}});  // somebody else's: its turn comes after the orchestrator
  feed(ProgramEnded{kOrchestrator, {true, SIGSEGV, {}}});
  EXPECT_THAT(said_, Contains(HasSubstr("worker-0 ended with signal 15")));
  EXPECT_THAT(said_, Contains(HasSubstr("orchestrator ended with signal 11")));
}

TEST_F(SupervisorTest, LossAndReturnOfServiceIsSaidOnce) {
  start_all();
  feed(HealthSeen{false, "no worker"});
  feed(HealthSeen{false, "no worker"});
  feed(HealthSeen{true, ""});
  EXPECT_THAT(said_, ElementsAre("does not serve at present: no worker", "serves again"));
}

TEST_F(SupervisorTest, EventsOfProgramsThatDoNotRunAreIgnored) {
  EXPECT_THAT(ends(kWorker0), ElementsAre("start 0", "start 3"));
  EXPECT_THAT(ends(99), IsEmpty());
}

}  // namespace
}  // namespace moestro::cli
