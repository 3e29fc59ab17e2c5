// The store serves another version of the pack: workers take it one after the other.

#include "tests/orchestrator/control_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using std::chrono::seconds;

class ControlRollover : public ControlPlaneTest {
 protected:
  ControlRollover() {
    ControlOptions options;
    options.served_version = &served_;
    start(100, options);
  }
  void serve(uint64_t version) {
    served_.store(version);
    settle();
  }
  std::vector<std::string> outdated() {
    settle();
    std::vector<std::string> names;
    for (const auto& w : control_->snapshot().workers)
      if (w.outdated) names.push_back(w.name);
    return names;
  }
  std::atomic<uint64_t> served_{7};
};

TEST_F(ControlRollover, AWorkerIsSentForTheNewVersionWhenItHasEndedWhatItBegan) {
  FakeWorker before(endpoint_), after(endpoint_);
  EXPECT_EQ(control_->pack_version(), 0u);
  before.join({.pack = 7});
  EXPECT_EQ(control_->pack_version(), 7u);
  Heard heard, next;
  submit(heard, 2);
  before.answer(tokens(before.hear_plan()));
  heard.next<Progress>();
  serve(8);
  EXPECT_EQ(outdated(), std::vector<std::string>{"w"});
  submit(next, 1);
  before.answer(tokens(before.hear_plan()));
  heard.next<Progress>();
  heard.next<Finished>();
  EXPECT_TRUE(before.hear_drain()) << "to attach anew";
  wait_until_no_worker();  // the control thread says so after it has sent the drain
  EXPECT_TRUE(next.nothing());
  EXPECT_EQ(control_->pack_version(), 7u) << "nothing has been computed with the new one";
  after.join({.pack = 8, .epoch = 2});
  EXPECT_EQ(control_->pack_version(), 8u);
  after.answer(tokens(after.hear_plan()));
  next.next<Progress>();
  next.next<Finished>();
  EXPECT_TRUE(outdated().empty());
  EXPECT_EQ(control_->snapshot().workers_lost, 0u) << "nobody died";
  EXPECT_EQ(control_->snapshot().worker_restarts, 0u);
}

TEST_F(ControlRollover, AWorkerThatDiesIsBackWithTheNewVersionBesideTheOld) {
  FakeWorker first(endpoint_), second(endpoint_), back(endpoint_);
  first.join({.name = "first", .pack = 7});
  second.join({.name = "second", .pack = 7});
  Heard one, two;
  submit(one, 3);
  submit(two, 3);
  const Plan of_first = first.hear_plan(), of_second = second.hear_plan();
  first.answer(tokens(of_first));
  second.answer(tokens(of_second));
  one.next<Progress>();
  two.next<Progress>();
  back.join({.name = "first", .pack = 8, .epoch = 2});  // the store has not been asked yet
  EXPECT_EQ(outdated(), std::vector<std::string>{"second"});
  EXPECT_FALSE(back.try_plan(std::chrono::milliseconds(0))) << "what has begun with another version is not for it";
  Heard fresh;
  submit(fresh, 1);
  back.answer(tokens(back.hear_plan()));
  fresh.next<Progress>();
  fresh.next<Finished>();
  // The sequence of the one that died goes on where its version is, once it runs alone.
  for (int ended = 0; ended < 2;) {
    const auto plan = second.hear_plan();
    for (const PlannedSequence& s : plan.sequences) {
      const int64_t end = s.first_position + static_cast<int64_t>(s.tokens.size());
      ended += s.sample && end == 5;  // three of prompt, three sampled
    }
    second.answer(tokens(plan));
  }
  for (Heard* heard : {&one, &two}) {
    heard->next<Progress>();
    heard->next<Progress>();
    heard->next<Finished>();
  }
  EXPECT_TRUE(second.hear_drain());
}

TEST_F(ControlRollover, TheStoreHasTheLastWord) {
  FakeWorker worker(endpoint_);
  settle();
  worker.join({.pack = 8});  // attached before the store went back to 7, which it said all the time
  EXPECT_TRUE(outdated().empty());
  for (int i = 0; i < 6; ++i) {
    clock_->advance(seconds(1));
    worker.send_heartbeat();
    settle();
  }
  EXPECT_TRUE(worker.hear_drain()) << "it is to have what the store says";
}

TEST_F(ControlRollover, OnlyTheLastVersionsAreRemembered) {
  FakeWorker worker(endpoint_), late(endpoint_);
  settle();
  constexpr uint64_t kFirst = 100, kLast = kFirst + 65;
  for (uint64_t version = kFirst; version <= kLast; ++version)
    worker.join({.pack = version, .epoch = version});  // the store has not been asked yet
  late.join({.name = "late", .pack = kFirst + 1, .epoch = 1});
  EXPECT_EQ(outdated(), std::vector<std::string>{"late"}) << "its version was served before";
  late.join({.name = "late", .pack = kFirst, .epoch = 2});  // 64 others came after it and before the last
  EXPECT_TRUE(worker.hear_drain()) << "taken for a version that nobody knew";
}

TEST_F(ControlRollover, WhatTheStoreSaysLateIsNoReasonToGoBack) {
  FakeWorker first(endpoint_), second(endpoint_);
  settle();
  first.join({.name = "first", .pack = 8});  // attached after the store was last asked
  settle();
  EXPECT_TRUE(outdated().empty());
  serve(8);
  EXPECT_TRUE(outdated().empty());
  second.join({.name = "second", .pack = 7});
  EXPECT_EQ(outdated(), std::vector<std::string>{"second"});
  clock_->advance(seconds(1));
  second.send_heartbeat();
  serve(7);  // back again
  EXPECT_TRUE(first.hear_drain());
  EXPECT_TRUE(outdated().empty());
}

}  // namespace
}  // namespace moestro::orchestrator
