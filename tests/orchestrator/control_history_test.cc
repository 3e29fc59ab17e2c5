// The history: from workers' results to workers and to the next start.

#include <gtest/gtest.h>

#include <future>

#include "common/activation/history_mapping.h"
#include "tests/orchestrator/control_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using std::chrono::seconds;

const FakeWorker::Identity kWho{.experts = {2, 4, 1}, .wants_history = true};

/// A history of 8 requests, whose first checkpoint goes to `kept`.
ControlOptions keeping(std::promise<std::vector<std::byte>>& kept) {
  ControlOptions options;
  options.history.capacity = 8;
  options.keep_history = [&kept](std::vector<std::byte> bytes) { kept.set_value(std::move(bytes)); };
  return options;
}

TEST_F(ControlPlaneTest, WhatARequestUsedReachesWorkersAndTheNextStart) {
  using Entries = std::vector<HistoryEntry>;
  std::promise<std::vector<std::byte>> kept;
  start(100, keeping(kept));
  FakeWorker worker(endpoint_);
  worker.join(kWho);
  worker.answer_history_segment(worker.hear_history_segment(), false);
  EXPECT_EQ(worker.hear_history(), std::pair(true, Entries{}));
  Heard heard;
  submit(heard, 5);
  for (int step = 0; step < 5; ++step) {
    const Plan plan = worker.hear_plan();
    EXPECT_EQ(plan.sequences[0].counted, plan.sequences[0].first_position);
    PlanOutcome outcome = tokens(plan);
    for (uint32_t layer : {0U, 1U})
      outcome.sequences[0].activations.push_back(
          {MoeLayerId(layer), ExpertId(step == 0 ? 1U : 3U), static_cast<uint32_t>(plan.sequences[0].tokens.size())});
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
  next.join(kWho);
  next.answer_history_segment(next.hear_history_segment(), false);
  EXPECT_EQ(next.hear_history(), std::pair(true, Entries{{true, 0}}));
}

TEST_F(ControlPlaneTest, WhatWasComputedBehindAStopStringIsNotInTheHistory) {
  std::promise<std::vector<std::byte>> kept;
  start(100, keeping(kept));
  FakeWorker worker(endpoint_);
  worker.join(kWho);
  worker.answer_history_segment(worker.hear_history_segment(), false);
  worker.hear_history();
  Heard heard;
  SequenceRequest r = request(20);
  r.text_ends = true;
  const SequenceId id = r.id;
  ASSERT_TRUE(control_->submit(std::move(r), heard.sink()));
  for (int step = 0; step < 9; ++step) {  // the prompt, and eight tokens, of which the last two follow a stop string
    const Plan plan = worker.hear_plan();
    PlanOutcome outcome = tokens(plan);
    for (uint32_t layer : {0U, 1U})
      outcome.sequences[0].activations.push_back(
          {MoeLayerId(layer), ExpertId(step < 7 ? 2U : 3U), static_cast<uint32_t>(plan.sequences[0].tokens.size())});
    worker.answer(outcome);
    heard.next<Progress>();
  }
  worker.hear_plan();
  control_->cancel(id, 7);
  EXPECT_EQ(worker.hear_history(), std::pair(false, std::vector<HistoryEntry>{{true, 0}}));
  control_->keep_history_now(seconds(10));
  activation::ActivationHistory read(activation::EamcShape{2, 4, 1}, 8);
  ASSERT_TRUE(activation::read_checkpoint(kept.get_future().get(), kWho.pack, read));
  const auto cells = read.answers.cells(0);
  EXPECT_EQ(std::vector<uint8_t>(cells.begin(), cells.end()), (std::vector<uint8_t>{0, 0, 255, 0, 0, 0, 255, 0}));
}

class LentHistory : public ControlPlaneTest {
 protected:
  LentHistory() { start(100, options()); }
  static ControlOptions options() {
    ControlOptions options;
    options.history.capacity = 8;
    return options;
  }
  activation::HistoryExpected expected(uint64_t segment) const { return {segment, kWho.pack, kWho.experts}; }
  /// A request whose answer's five tokens choose this expert everywhere; `worker` computes it.
  void run_request(FakeWorker& worker, uint32_t expert) {
    Heard heard;
    submit(heard, 5);
    for (int step = 0; step < 5; ++step) {
      const Plan plan = worker.hear_plan();
      PlanOutcome outcome = tokens(plan);
      for (uint32_t layer : {0U, 1U})
        outcome.sequences[0].activations.push_back(
            {MoeLayerId(layer), ExpertId(expert), static_cast<uint32_t>(plan.sequences[0].tokens.size())});
      worker.answer(outcome);
      heard.next<Progress>();
    }
    heard.next<Finished>();
    settle();
  }
  std::vector<uint64_t> readers() {
    settle();
    const HistoryReaders& r = control_->snapshot().history_readers;
    return {r.by_memory, r.by_messages};
  }
  std::filesystem::path socket() const { return dir_ / "o.history"; }
};

std::vector<uint8_t> cells(const activation::EamcView& eamc, int32_t entry) {
  std::vector<uint8_t> cells(eamc.shape().cells());
  EXPECT_TRUE(eamc.copy(entry, eamc.version(entry), 0, cells));
  return cells;
}

TEST_F(LentHistory, WhoMapsItSeesChangesWithoutAMessageAndTheOthersAreSentThem) {
  FakeWorker one(endpoint_);
  one.join(kWho);
  const uint64_t segment = one.hear_history_segment();
  const auto mapped = activation::HistoryMapping::receive(socket(), expected(segment), seconds(10));
  ASSERT_TRUE(mapped.is_ok()) << mapped.status().message();
  one.answer_history_segment(segment, true);
  EXPECT_EQ(readers(), (std::vector<uint64_t>{1, 0}));
  EXPECT_GE(control_->snapshot().history_readers.shared_bytes, activation::kHistoryPage);

  run_request(one, 3);
  EXPECT_EQ(mapped->view().answers.size(), 1);
  EXPECT_EQ(cells(mapped->view().answers, 0), (std::vector<uint8_t>{0, 0, 0, 255, 0, 0, 0, 255}));
  EXPECT_FALSE(one.try_plan(std::chrono::milliseconds(0))) << "nothing was sent to it";

  auto other = kWho;
  other.name = "other", other.epoch = 99;
  FakeWorker two(endpoint_);
  two.join(other);
  two.answer_history_segment(two.hear_history_segment(), false);
  EXPECT_EQ(two.hear_history(), std::pair(true, std::vector<HistoryEntry>{{true, 0}}));
  EXPECT_EQ(readers(), (std::vector<uint64_t>{1, 1}));
}

TEST_F(LentHistory, AnAnswerAboutAnotherSegmentIsNone) {
  FakeWorker worker(endpoint_);
  worker.join(kWho);
  const uint64_t segment = worker.hear_history_segment();
  worker.answer_history_segment(segment + 1, true);
  EXPECT_EQ(readers(), (std::vector<uint64_t>{0, 0}));
  worker.answer_history_segment(segment, false);
  EXPECT_EQ(worker.hear_history().first, true);
  EXPECT_EQ(readers(), (std::vector<uint64_t>{0, 1}));
}

TEST_F(LentHistory, TheNextStartHasAnotherSegmentAndTheOldOneStaysAsItWas) {
  FakeWorker worker(endpoint_);
  worker.join(kWho);
  const uint64_t segment = worker.hear_history_segment();
  const auto mapped = activation::HistoryMapping::receive(socket(), expected(segment), seconds(10));
  ASSERT_TRUE(mapped.is_ok());
  run_request(worker, 2);
  control_.reset();
  EXPECT_EQ(cells(mapped->view().answers, 0)[2], 255) << "its reader has it still";
  EXPECT_FALSE(std::filesystem::exists(socket()));
  start(100, options());
  FakeWorker again(endpoint_);
  again.join(kWho);
  const uint64_t next = again.hear_history_segment();
  EXPECT_NE(next, segment);
  EXPECT_EQ(activation::HistoryMapping::receive(socket(), expected(segment), seconds(10)).status().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(activation::HistoryMapping::receive(socket(), expected(next), seconds(10)).is_ok());
}

TEST_F(LentHistory, AnotherPackHasASegmentOfItsOwn) {
  auto pack = kWho;
  uint64_t former = 0;
  {
    FakeWorker worker(endpoint_);
    worker.join(pack);
    former = worker.hear_history_segment();
  }
  wait_until_no_worker();
  pack.pack = 78, pack.experts = {3, 8, 2}, pack.epoch = 6;
  FakeWorker worker(endpoint_);
  worker.join(pack);
  const uint64_t segment = worker.hear_history_segment();
  EXPECT_NE(segment, former);
  EXPECT_TRUE(activation::HistoryMapping::receive(socket(), {segment, 78, {3, 8, 2}}, seconds(10)).is_ok());
}

TEST_F(ControlPlaneTest, WhereTheHistoryCannotBeLentItIsSent) {
  ASSERT_TRUE(std::filesystem::create_directory(dir_ / "o.history")) << "where its socket would be";
  start(100, [] {
    ControlOptions options;
    options.history.capacity = 8;
    return options;
  }());
  FakeWorker worker(endpoint_);
  worker.join({.experts = {2, 4, 1}, .wants_history = true});
  EXPECT_EQ(worker.hear_history(), std::pair(true, std::vector<HistoryEntry>{}));
  settle();
  EXPECT_EQ(control_->snapshot().history_readers.by_messages, 1U);
  EXPECT_EQ(control_->snapshot().history_readers.shared_bytes, 0U);
}

}  // namespace
}  // namespace moestro::orchestrator
