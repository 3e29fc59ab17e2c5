#include "orchestrator/control/control_plane.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "tests/orchestrator/control_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(ControlPlaneTest, ASequenceIsComputedStepByStep) {
  start();
  Heard heard;
  submit(heard);
  EXPECT_FALSE(control_->has_worker() || control_->had_worker());
  FakeWorker worker(endpoint_);
  worker.join();
  EXPECT_TRUE(control_->has_worker() && control_->had_worker());
  for (const TokenId expected : {10, 11, 12}) {
    worker.answer(tokens(worker.hear_plan()));
    const auto progress = heard.next<Progress>();
    ASSERT_EQ(progress.sampled.size(), 1u);
    EXPECT_EQ(progress.sampled[0].id, expected);
  }
  EXPECT_EQ(heard.next<Finished>().reason, FinishReason::kLength);
}

TEST_F(ControlPlaneTest, TheNextStepIsSentBeforeTheResult) {
  start(/*queue_max=*/100, {}, /*steps_in_flight=*/2);
  FakeWorker worker(endpoint_);
  worker.join();
  Heard heard;
  submit(heard);
  Plan first = worker.hear_plan(), second = worker.hear_plan();
  EXPECT_EQ(second.parent, first.id);
  EXPECT_EQ(second.sequences.at(0).tokens, std::vector<TokenId>{kSampledByParent});
  EXPECT_EQ(second.sequences[0].first_position, 3);
  EXPECT_EQ(second.sequences[0].ends, std::vector<TokenId>{0});
  worker.answer(tokens(first));
  EXPECT_EQ(heard.next<Progress>().sampled.at(0).id, 10);
  const Plan third = worker.hear_plan();
  EXPECT_EQ(third.parent, second.id);
  worker.answer(tokens(second));
  worker.answer(tokens(third));
  EXPECT_EQ(heard.next<Progress>().sampled.at(0).id, 11);
  EXPECT_EQ(heard.next<Progress>().sampled.at(0).id, 12);
  EXPECT_EQ(heard.next<Finished>().reason, FinishReason::kLength);
  settle();
  EXPECT_FALSE(worker.try_plan(milliseconds(0)).has_value()) << "the end was known";
}

TEST_F(ControlPlaneTest, AWorkerThatDiesWithTwoStepsLosesAndRepeatsNothing) {
  start(/*queue_max=*/100, {}, /*steps_in_flight=*/2);
  FakeWorker worker(endpoint_);
  worker.join({.epoch = 1});
  Heard heard;
  submit(heard, 4);
  worker.answer(tokens(worker.hear_plan()));
  EXPECT_EQ(heard.next<Progress>().sampled.at(0).id, 10);
  const Plan lost[] = {worker.hear_plan(), worker.hear_plan()};
  worker.send_registration({.epoch = 2});
  worker.hear_registered();
  for (const Plan& plan : lost) worker.answer(tokens(plan));  // of the old epoch: nobody waits for them
  const Plan again = worker.hear_plan();
  EXPECT_EQ(again.parent, PlanId());
  EXPECT_EQ(again.sequences.at(0).tokens, (std::vector<TokenId>{5, 6, 7, 10}));
  worker.answer(tokens(again));
  for (int i = 0; i < 2; ++i) worker.answer(tokens(worker.hear_plan()));
  for (const TokenId expected : {11, 12, 13}) EXPECT_EQ(heard.next<Progress>().sampled.at(0).id, expected);
  heard.next<Finished>();
}

TEST_F(ControlPlaneTest, RefusesWorkersThatDoNotFit) {
  ControlOptions options;
  options.tokenizer = 5;
  start(100, options);
  FakeWorker good(endpoint_), bad(endpoint_);
  good.join();
  const auto refused = [&](FakeWorker::Identity who, const std::string& words) {
    who.name = "other";
    bad.send_registration(who);
    EXPECT_NE(bad.hear_refused().message.find(words), std::string::npos) << words;
  };
  refused({.protocol = kWorkerProtocol + 1}, "protocol");
  refused({.model = "another"}, "'another'");
  refused({.pack = 8, .experts = {2, 4, 1}}, "another model");
  refused({.ranks = 2}, "2 ranks");
  refused({.tokenizer = 6}, "another tokenizer.json");
  FakeWorker(endpoint_).join({.name = "same", .tokenizer = 5});
  Heard heard;
  submit(heard, 1);
  good.answer(tokens(good.hear_plan()));
  heard.next<Progress>();
  EXPECT_FALSE(bad.try_plan(milliseconds(0)).has_value());
}

TEST_F(ControlPlaneTest, AnotherPackIsTakenOnceNobodyHasTheOld) {
  start();
  FakeWorker worker(endpoint_);
  worker.join({.pack = 7, .epoch = 1});
  wait_until_no_worker();
  FakeWorker later(endpoint_);
  later.join({.name = "later", .pack = 8});
  Heard heard;
  submit(heard, 1);
  later.answer(tokens(later.hear_plan()));
  heard.next<Progress>();
}

TEST_F(ControlPlaneTest, ARegistrationWhoseAnswerWasLostIsAnsweredAgain) {
  start();
  FakeWorker worker(endpoint_);
  const WorkerId id = worker.join();
  EXPECT_EQ(worker.join(), id);
  EXPECT_EQ(control_->snapshot().workers_lost, 0u);
}

TEST_F(ControlPlaneTest, AWorkerInANewEpochStartsFromTheTokens) {
  start();
  FakeWorker worker(endpoint_);
  const WorkerId first = worker.join({.epoch = 1});
  Heard heard;
  submit(heard);
  worker.answer(tokens(worker.hear_plan()));
  EXPECT_EQ(heard.next<Progress>().sampled.at(0).id, 10);
  const Plan lost = worker.hear_plan();
  worker.send_registration({.epoch = 2});
  EXPECT_NE(worker.hear_registered(), first);
  const Plan again = worker.hear_plan();
  ASSERT_EQ(again.sequences.size(), 1u);
  EXPECT_EQ(again.sequences[0].first_position, 0);
  EXPECT_EQ(again.sequences[0].tokens, (std::vector<TokenId>{5, 6, 7, 10})) << "with what was sampled already";
  worker.answer(tokens(lost));  // of the old epoch: nobody waits for it
  worker.answer(tokens(again));
  EXPECT_EQ(heard.next<Progress>().sampled.at(0).id, 11) << "no token twice, none left out";
  worker.answer(tokens(worker.hear_plan()));
  EXPECT_EQ(heard.next<Progress>().sampled.at(0).id, 12);
  heard.next<Finished>();
}

TEST_F(ControlPlaneTest, ASuccessorOfTheSameNameTakesOver) {
  start();
  FakeWorker old(endpoint_), successor(endpoint_);
  old.join({.name = "w", .epoch = 1});
  Heard heard;
  submit(heard, 1);
  const Plan plan = old.hear_plan();
  successor.join({.name = "w", .epoch = 2});
  successor.answer(tokens(successor.hear_plan()));
  heard.next<Progress>();
  heard.next<Finished>();
  old.answer(tokens(plan));
  EXPECT_EQ(old.hear_refused().code, Code::kNotFound) << "it is to register again";
  EXPECT_TRUE(heard.nothing());
}

TEST_F(ControlPlaneTest, ASilentWorkerIsGivenUpAndItsWorkGoesElsewhere) {
  start();
  FakeWorker silent(endpoint_), other(endpoint_);
  silent.join({.name = "silent"});
  Heard heard;
  submit(heard, 1);
  const Plan plan = silent.hear_plan();
  other.join({.name = "other"});
  pass(milliseconds(1500));
  other.join({.name = "other"});  // the same epoch: it says that it is there
  pass(milliseconds(1000));
  other.answer(tokens(other.hear_plan()));
  heard.next<Progress>();
  heard.next<Finished>();
  silent.answer(tokens(plan));
  EXPECT_EQ(silent.hear_refused().code, Code::kNotFound);
  EXPECT_TRUE(control_->has_worker());
}

TEST_F(ControlPlaneTest, AWorkerMayLeaveAtOnceIfThereIsAnother) {
  start();
  FakeWorker leaves(endpoint_), stays(endpoint_);
  leaves.join({.name = "leaves"});
  Heard heard;
  submit(heard, 2);
  leaves.hear_plan();
  stays.join({.name = "stays"});
  leaves.send_heartbeat(/*asks_to_leave=*/true);
  EXPECT_FALSE(leaves.hear_drain());
}

TEST_F(ControlPlaneTest, OfWorkersThatAreToldToStopTogetherTheLastEndsWhatHasBegun) {
  start();
  FakeWorker first(endpoint_), last(endpoint_);
  first.join({.name = "first"});
  Heard one, late;
  submit(one, 2);
  first.answer(tokens(first.hear_plan()));
  one.next<Progress>();
  first.hear_plan();
  const WorkerId id = last.join({.name = "last"});
  first.send_heartbeat(/*asks_to_leave=*/true);
  EXPECT_FALSE(first.hear_drain());
  last.send_heartbeat(/*asks_to_leave=*/true);
  EXPECT_EQ(last.hear_registered(), id) << "it is needed";
  first.send_leaving();
  const Plan begun = last.hear_plan();
  submit(late, 2);
  last.answer(tokens(begun));
  one.next<Progress>();
  one.next<Finished>();
  settle();
  last.hear_plan();
  last.send_heartbeat(/*asks_to_leave=*/true);
  EXPECT_FALSE(last.hear_drain()) << "a request that came later does not keep it";
}

TEST_F(ControlPlaneTest, AWorkerThatIsToldToStopIsNotKeptForEver) {
  start();
  FakeWorker worker(endpoint_);
  const WorkerId id = worker.join();
  Heard heard;
  submit(heard, 2);
  worker.hear_plan();
  worker.send_heartbeat(/*asks_to_leave=*/true);
  EXPECT_EQ(worker.hear_registered(), id);
  clock_->advance(std::chrono::seconds(31));
  worker.send_heartbeat(/*asks_to_leave=*/true);
  EXPECT_FALSE(worker.hear_drain());
}

TEST_F(ControlPlaneTest, AWorkerThatWasAskedToStopHandsBackItsWorkAtOnceAndNothingIsSuspected) {
  start();
  FakeWorker leaves(endpoint_), stays(endpoint_);
  leaves.join({.name = "leaves"});
  Heard one, two;
  submit(one, 2);
  leaves.answer(tokens(leaves.hear_plan()));
  one.next<Progress>();
  submit(two, 1);
  settle();
  leaves.hear_plan();
  leaves.send_leaving();
  stays.join({.name = "stays"});
  const Plan plan = stays.hear_plan();  // while the clock stands still
  EXPECT_EQ(plan.sequences.size(), 2u) << "suspects would run one by one";
  stays.answer(tokens(plan));
  for (Heard* heard : {&one, &two}) {
    heard->next<Progress>();
    heard->next<Finished>();
  }
  leaves.join({.name = "leaves", .epoch = 2});
  settle();
  EXPECT_EQ(control_->snapshot().workers_lost, 0u);
  EXPECT_EQ(control_->snapshot().worker_restarts, 0u) << "it is back as a new one";
}

TEST_F(ControlPlaneTest, AWorkerThatSaysThatItCannotGoOnIsLostAtOnce) {
  start();
  FakeWorker worker(endpoint_);
  worker.join({.epoch = 1});
  worker.send_leaving(unavailable("the device is gone"));
  settle();
  EXPECT_FALSE(control_->has_worker());
  EXPECT_EQ(control_->snapshot().workers_lost, 1u);
  worker.join({.epoch = 2});
  settle();
  EXPECT_EQ(control_->snapshot().worker_restarts, 1u);
}

TEST_F(ControlPlaneTest, AfterAPauseOfItsOwnItWaitsForWhatWorkersHaveSent) {
  start();
  FakeWorker worker(endpoint_);
  worker.join();
  Heard heard;
  submit(heard, 1);
  const Plan plan = worker.hear_plan();
  for (int pause = 0; pause < 3; ++pause) {
    clock_->advance(seconds(10));
    settle();
    EXPECT_TRUE(control_->has_worker());
  }
  worker.answer(tokens(plan));
  heard.next<Progress>();
  heard.next<Finished>();
  wait_until_no_worker();  // which is silent from now on
}

TEST_F(ControlPlaneTest, WhoWaitsForAWorkerThatNeverReturnsFails) {
  start();
  Heard never, gone;
  submit(never);
  settle();
  clock_->advance(seconds(59));
  settle();
  EXPECT_TRUE(never.nothing());
  clock_->advance(seconds(1));
  const Status error = never.next<Failed>().error;
  EXPECT_EQ(error.code(), Code::kUnavailable);
  EXPECT_NE(error.message().find("no worker"), std::string::npos);

  FakeWorker worker(endpoint_);
  worker.join();
  submit(gone);
  worker.hear_plan();
  wait_until_no_worker();  // it falls silent
  clock_->advance(seconds(60));
  EXPECT_EQ(gone.next<Failed>().error.code(), Code::kUnavailable);
  EXPECT_TRUE(control_->had_worker());
}

TEST_F(ControlPlaneTest, TheQueueIsBounded) {
  start(/*queue_max=*/2);
  Heard heard;
  const SequenceId first = submit(heard);
  submit(heard);
  EXPECT_EQ(control_->submit(request(), heard.sink()).code(), Code::kExhausted);
  control_->cancel(first);
  settle();
  submit(heard);
  EXPECT_EQ(control_->submit(request(), heard.sink()).code(), Code::kExhausted);
  EXPECT_TRUE(heard.nothing());
}

TEST_F(ControlPlaneTest, OneKeyThatFillsTheQueueLeavesPlacesToOthers) {
  start(/*queue_max=*/16);
  EXPECT_EQ(control_->sequences_max("a"), 14u);
  EXPECT_EQ(control_->sequences_max(""), 16u) << "without keys nothing is kept back";
  Heard heard;
  const auto send = [&](const char* key) {
    SequenceRequest r = request();
    r.flow = key;
    const SequenceId id = r.id;
    return control_->submit(std::move(r), heard.sink()).is_ok() ? std::optional(id) : std::nullopt;
  };
  std::vector<SequenceId> flood;
  while (const auto id = send("flood")) flood.push_back(*id);
  EXPECT_EQ(flood.size(), 14u);
  EXPECT_TRUE(send("other"));
  control_->cancel(flood[0]);
  settle();
  EXPECT_FALSE(send("flood")) << "not while others may want the last places";
  EXPECT_TRUE(send("other"));
  EXPECT_TRUE(send("other"));
  EXPECT_FALSE(send("third")) << "now it is full";
}

TEST_F(ControlPlaneTest, ACancelledSequenceLeavesItsWorker) {
  start();
  FakeWorker worker(endpoint_);
  worker.join();
  Heard cancelled, other;
  const SequenceId id = submit(cancelled);
  const Plan plan = worker.hear_plan();
  control_->cancel(id);
  submit(other, 1);
  settle();
  worker.answer(tokens(plan));
  const Plan next = worker.hear_plan();
  EXPECT_EQ(next.released, (std::vector<ReleasedSequence>{{id, 0}}));
  worker.answer(tokens(next));
  other.next<Progress>();
  other.next<Finished>();
  EXPECT_TRUE(cancelled.nothing());
}

TEST_F(ControlPlaneTest, DrainingRefusesTheNewAndWaitsForTheOld) {
  start();
  FakeWorker worker(endpoint_);
  worker.join();
  Heard heard;
  submit(heard, 1);
  const Plan plan = worker.hear_plan();
  auto drained = std::async(std::launch::async, [this] { control_->drain(std::chrono::hours(1)); });
  Heard late;
  Status refused;
  do refused = control_->submit(request(1), late.sink());
  while (refused.is_ok() || refused.code() == Code::kExhausted);
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_EQ(drained.wait_for(milliseconds(0)), std::future_status::timeout);
  worker.answer(tokens(plan));
  heard.next<Progress>();
  heard.next<Finished>();
  while (drained.wait_for(milliseconds(0)) !=
         std::future_status::ready)  // what was let in before the gate closed is computed as well
    if (const auto more = worker.try_plan(milliseconds(20))) worker.answer(tokens(*more));
  control_.reset();
  worker.hear_drain();
}

TEST_F(ControlPlaneTest, WhatIsLeftAfterTheLimitOfADrainFails) {
  start();
  FakeWorker worker(endpoint_);
  worker.join();
  Heard running, waiting;
  submit(running);
  worker.hear_plan();
  submit(waiting);
  control_->drain(milliseconds(0));
  for (Heard* heard : {&running, &waiting}) {
    const Status error = heard->next<Failed>().error;
    EXPECT_EQ(error.code(), Code::kUnavailable);
    EXPECT_NE(error.message().find("shutting down"), std::string::npos);
  }
}

TEST_F(ControlPlaneTest, EveryOwnerHearsTheEnd) {
  start();
  Heard heard;
  submit(heard);
  control_.reset();
  EXPECT_EQ(heard.next<Failed>().error.code(), Code::kUnavailable);
}

TEST_F(ControlPlaneTest, GarbageFromAPeerIsDropped) {
  start();
  FakeWorker junk(endpoint_), worker(endpoint_);
  junk.send_bytes({});
  junk.send_bytes(std::vector<std::byte>(100, std::byte{0xab}));
  worker.join();
  Heard heard;
  submit(heard, 1);
  const Plan plan = worker.hear_plan();
  PlanOutcome wrong = tokens(plan);
  wrong.plan = PlanId{99};
  worker.answer(wrong);
  worker.answer(tokens(plan));
  heard.next<Progress>();
  heard.next<Finished>();
}

TEST_F(ControlPlaneTest, TheSnapshotCounts) {
  start();
  FakeWorker worker(endpoint_);
  worker.join();
  Heard heard;
  submit(heard, 1);
  worker.answer(tokens(worker.hear_plan()));
  heard.next<Progress>();
  heard.next<Finished>();
  settle();
  const ControlSnapshot s = control_->snapshot();
  EXPECT_EQ(s.plans, 1u);
  EXPECT_EQ(s.sampled_tokens, 1u);
  EXPECT_EQ(s.step_us, 1000u);
  EXPECT_EQ(s.expert_hits, 3u);
  EXPECT_EQ(s.expert_misses, 1u);
  EXPECT_EQ(s.fetched_bytes, 4096u);
  EXPECT_EQ(s.nonfinite_sequences, 2u);
  EXPECT_EQ(s.dropped_rows, 5u);
  EXPECT_EQ(s.kv_blocks_used, 0u);
  EXPECT_EQ(s.kv_blocks_total, 64u);
  ASSERT_EQ(s.workers.size(), 1u);
  EXPECT_EQ(s.workers[0].name, "w");
  EXPECT_EQ(s.workers[0].plans, 1u);
}

}  // namespace
}  // namespace moestro::orchestrator
