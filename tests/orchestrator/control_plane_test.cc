#include "orchestrator/control/control_plane.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <optional>

#include "tests/cli/temp_dir.h"
#include "tests/orchestrator/fake_worker.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// What a sequence's owner hears, in order.
class Heard {
 public:
  /// May be called when this is gone: the control plane outlives what a test has on its stack.
  Sink sink() {
    return [s = state_](SequenceEvent event) {
      const std::lock_guard lock(s->mutex);
      s->events.push_back(std::move(event));
      s->changed.notify_all();
    };
  }
  template <typename T>
  T next() {
    std::unique_lock lock(state_->mutex);
    auto& events = state_->events;
    MOESTRO_CHECK(state_->changed.wait_for(lock, kAnswerLimit, [&] { return !events.empty(); }), "the owner hears nothing");
    MOESTRO_CHECK(std::holds_alternative<T>(events.front()), "the owner hears something else");
    T event = std::get<T>(std::move(events.front()));
    events.pop_front();
    return event;
  }
  bool nothing() const {
    const std::lock_guard lock(state_->mutex);
    return state_->events.empty();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<SequenceEvent> events;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class ControlPlaneTest : public ::testing::Test {
 protected:
  /// One step in flight: a test answers plan by plan.
  void start(size_t queue_max = 100, ControlOptions options = {}, size_t steps_in_flight = 1) {
    options.endpoint = endpoint_;
    options.model = "m";
    options.eos_ids = {0};
    options.queue_max = queue_max;
    options.steps_in_flight = steps_in_flight;
    options.clock = clock_;
    auto started = ControlPlane::start(options);
    MOESTRO_CHECK(started.is_ok(), started.status().message());
    control_ = std::move(*started);
  }
  SequenceRequest request(int64_t tokens_max = 3) {
    SequenceRequest r;
    r.id = control_->next_sequence_id();
    r.prompt = {5, 6, 7};
    r.tokens_max = tokens_max;
    return r;
  }
  SequenceId submit(Heard& heard, int64_t tokens_max = 3) {
    SequenceRequest r = request(tokens_max);
    const SequenceId id = r.id;
    EXPECT_TRUE(control_->submit(std::move(r), heard.sink()).is_ok());
    return id;
  }
  /// Returns once the control thread has taken all that was submitted before, and shows it in its figures.
  void settle() {
    FakeWorker stranger(endpoint_);
    for (const uint64_t seen = control_->snapshot().turns; control_->snapshot().turns < seen + 2;) {
      stranger.send_heartbeat();
      EXPECT_EQ(stranger.hear_refused().code, Code::kNotFound);
    }
  }
  void wait_until_no_worker() {
    while (control_->has_worker()) settle();
  }
  static PlanOutcome tokens(const Plan& plan) {  // 10, 11, ...: after position 2, 3, ...
    return compute(plan, [](const PlannedSequence&, int64_t position) { return static_cast<TokenId>(8 + position); });
  }

  test::TempDir dir_;
  const std::string endpoint_ = "ipc://" + (dir_ / "o.sock").string();
  const std::shared_ptr<TestClock> clock_ = std::make_shared<TestClock>();
  std::unique_ptr<ControlPlane> control_;
};

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

TEST_F(ControlPlaneTest, WhatARequestUsedReachesWorkersAndTheNextStart) {
  using Entries = std::vector<HistoryEntry>;
  const FakeWorker::Identity who{.experts = {2, 4, 1}, .wants_history = true};
  std::promise<std::vector<std::byte>> kept;
  start(100, [&] {
    ControlOptions options;
    options.history.capacity = 8;
    options.keep_history = [&kept](std::vector<std::byte> bytes) { kept.set_value(std::move(bytes)); };
    return options;
  }());
  FakeWorker worker(endpoint_);
  worker.join(who);
  EXPECT_EQ(worker.hear_history(), std::pair(true, Entries{}));
  Heard heard;
  submit(heard, 5);
  for (int step = 0; step < 5; ++step) {
    const Plan plan = worker.hear_plan();
    EXPECT_EQ(plan.sequences[0].counted, plan.sequences[0].first_position);
    PlanOutcome outcome = tokens(plan);
    for (uint32_t layer : {0U, 1U})
      outcome.sequences[0].activations.push_back({MoeLayerId(layer), ExpertId(step == 0 ? 1U : 3U), static_cast<uint32_t>(plan.sequences[0].tokens.size())});
    worker.answer(outcome);
    heard.next<Progress>();
  }
  heard.next<Finished>();
  // A prompt of three tokens is too short to say anything; the answer's four that were computed are not.
  EXPECT_EQ(worker.hear_history(), std::pair(false, Entries{{true, 0}}));
  control_->keep_history_now(seconds(10));
  control_->history_kept(Status::ok());
  const std::vector<std::byte> checkpoint = kept.get_future().get();
  settle();
  EXPECT_EQ(control_->snapshot().history.answers, 1U);
  EXPECT_TRUE(control_->snapshot().history_kept_s.has_value());

  control_.reset();
  start(100, [&] {
    ControlOptions options;
    options.history = {.capacity = 8, .checkpoint = checkpoint};
    return options;
  }());
  FakeWorker next(endpoint_);
  next.join(who);
  EXPECT_EQ(next.hear_history(), std::pair(true, Entries{{true, 0}}));
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
  start();
  FakeWorker good(endpoint_), bad(endpoint_);
  good.join();
  const auto refused = [&](FakeWorker::Identity who, const std::string& words) {
    who.name = "other";
    bad.send_registration(who);
    EXPECT_NE(bad.hear_refused().message.find(words), std::string::npos) << words;
  };
  refused({.protocol = kWorkerProtocol + 1}, "protocol");
  refused({.model = "another"}, "'another'");
  refused({.pack = 8}, "another version of the pack");
  refused({.ranks = 2}, "2 ranks");
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
  clock_->advance(seconds(3));
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
  clock_->advance(milliseconds(1500));
  other.join({.name = "other"});  // the same epoch: it says that it is there
  clock_->advance(milliseconds(1000));
  other.answer(tokens(other.hear_plan()));
  heard.next<Progress>();
  heard.next<Finished>();
  silent.answer(tokens(plan));
  EXPECT_EQ(silent.hear_refused().code, Code::kNotFound);
  EXPECT_TRUE(control_->has_worker());
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
  clock_->advance(seconds(3));  // it falls silent
  wait_until_no_worker();
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
  while (drained.wait_for(milliseconds(0)) != std::future_status::ready)  // what was let in before the gate closed is computed as well
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

TEST_F(ControlPlaneTest, TheFiguresHaveAnEndBeforeItsOwnerHearsOfIt) {
  start();
  FakeWorker worker(endpoint_);
  worker.join();
  for (uint64_t round = 1; round <= 20; ++round) {
    Heard heard;
    submit(heard, 1);
    worker.answer(tokens(worker.hear_plan()));
    heard.next<Progress>();
    heard.next<Finished>();
    const ControlSnapshot s = control_->snapshot();
    ASSERT_EQ(std::tuple(s.running, s.kv_blocks_used, s.sampled_tokens), std::tuple(0U, 0U, round));
  }
}

TEST_F(ControlPlaneTest, TheSnapshotCountsDevicesApart) {
  start();
  FakeWorker worker(endpoint_);
  worker.join({.experts = {2, 4, 1}, .device_slots = 5, .device_slot_bytes = 100});
  Heard heard;
  submit(heard, 1);
  PlanOutcome outcome = tokens(worker.hear_plan());
  outcome.sequences[0].activations = {{MoeLayerId(0), ExpertId(1), 3}, {MoeLayerId(1), ExpertId(0), 1}, {MoeLayerId(1), ExpertId(2), 1}, {MoeLayerId(7), ExpertId(0), 1}};
  worker.answer(outcome, 2);
  heard.next<Progress>();
  heard.next<Finished>();
  settle();
  const ControlSnapshot s = control_->snapshot();
  EXPECT_EQ(std::pair(s.expert_hits, s.dram_hits), std::pair(uint64_t{3}, uint64_t{0}));
  EXPECT_EQ(std::tuple(s.device.use.hits, s.device.use.misses, s.device.use.late, s.device.moved_bytes), std::tuple(6U, 4U, 2U, 500U));
  ASSERT_EQ(s.device_layers.size(), 2u);
  EXPECT_EQ(s.device_layers[1].hits, 3u);
  ASSERT_EQ(s.workers.size(), 1u);
  EXPECT_EQ(std::tuple(s.workers[0].device_slots, s.workers[0].device_resident, s.workers[0].recent.belady_hits), std::tuple(5U, 2U, 7U));
  EXPECT_EQ(control_->expert_shares().cells, (std::vector<float>{0, 1, 0, 0, 0.5F, 0, 0.5F, 0}));
}

TEST_F(ControlPlaneTest, AResultWithADeviceThatCannotBeFailsItsPlan) {
  start();
  FakeWorker worker(endpoint_);
  worker.join({.experts = {2, 4, 1}, .device_slots = 5, .device_slot_bytes = 100});
  for (const int layers : {0, 1, 3}) {
    Heard heard;
    submit(heard, 1);
    worker.answer(tokens(worker.hear_plan()), layers);
    const auto failed = heard.next<Failed>();
    EXPECT_EQ(failed.error.code(), Code::kInternal);
    EXPECT_NE(failed.error.message().find("layers"), std::string::npos) << failed.error.message();
  }
  Heard heard;
  submit(heard, 1);
  worker.answer(tokens(worker.hear_plan()), 2);
  heard.next<Progress>();
  heard.next<Finished>();
  settle();
  EXPECT_EQ(control_->snapshot().device.use.hits, 6u) << "only what can be is counted";
}

}  // namespace
}  // namespace moestro::orchestrator
