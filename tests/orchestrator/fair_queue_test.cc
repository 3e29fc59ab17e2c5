#include "orchestrator/scheduler/fair_queue.h"

#include <gtest/gtest.h>

#include "orchestrator/scheduler/batch_turn.h"

namespace moestro::orchestrator {
namespace {

/// The flow whose turn it is takes its first sequence, which is served so many tokens.
uint64_t take(FairQueue& queue, FairQueue::Flow& flow, int64_t tokens) {
  const SequenceId id = *queue.next();
  queue.erase(flow, id);
  flow.served += tokens;
  return id.value;
}

TEST(FairQueue, OneFlowIsFirstInFirstOut) {
  FairQueue queue;
  EXPECT_EQ(queue.next(), std::nullopt);
  FairQueue::Flow* flow = nullptr;
  for (uint64_t id = 1; id <= 3; ++id) queue.push_back(*(flow = &queue.enter("a")), {SequenceId{id}});
  queue.push_front(queue.enter("a"), {SequenceId{9}});
  queue.erase(*flow, SequenceId{2});
  EXPECT_EQ(queue.size(), 3u);
  for (const uint64_t id : {9, 1, 3}) EXPECT_EQ(take(queue, *flow, 10), id);
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, TheLowestPriorityOfAFlowIsFirst) {
  FairQueue queue;
  FairQueue::Flow& a = queue.enter("a");
  for (int i = 0; i < 5; ++i) queue.enter("a");
  queue.push_back(a, {SequenceId{1}, 0});
  queue.push_back(a, {SequenceId{2}, -3});
  queue.push_back(a, {SequenceId{3}, 7});
  queue.push_back(a, {SequenceId{4}, 0});
  queue.push_front(a, {SequenceId{5}, 0});
  for (const uint64_t id : {2, 5, 1, 4, 3}) EXPECT_EQ(take(queue, a, 1), id);
}

TEST(FairQueue, NoPriorityHelpsAgainstAnotherFlow) {
  FairQueue queue;
  FairQueue::Flow &a = queue.enter("a"), &b = queue.enter("b");
  a.served = 10;
  queue.push_back(a, {SequenceId{1}, -1000});
  queue.push_back(b, {SequenceId{2}, 1000});
  EXPECT_EQ(queue.next(), SequenceId{2});
}

TEST(FairQueue, WhoWasServedLeastIsNext) {
  FairQueue queue;
  FairQueue::Flow *a = nullptr, *b = nullptr;
  for (uint64_t id = 1; id <= 100; ++id) queue.push_back(*(a = &queue.enter("a")), {SequenceId{id}});
  for (uint64_t id = 101; id <= 200; ++id) queue.push_back(*(b = &queue.enter("b")), {SequenceId{id}});
  for (int i = 0; i < 120; ++i) {
    const bool of_a = queue.next()->value <= 100;
    take(queue, of_a ? *a : *b, of_a ? 30 : 10);
    EXPECT_LE(std::abs(a->served - b->served), 30) << "after " << i;
  }
  EXPECT_EQ(a->served / 30, 30) << "its requests are three times as long: it has a third as many";
}

TEST(FairQueue, WhatIsAdmittedCountsBeforeItIsComputed) {
  FairQueue queue;
  FairQueue::Flow &a = queue.enter("a"), &b = queue.enter("b");
  queue.push_back(a, {SequenceId{1}});
  queue.push_back(b, {SequenceId{2}});
  EXPECT_EQ(queue.next(), SequenceId{1});
  a.pending = 5;
  EXPECT_EQ(queue.next(), SequenceId{2});
  queue.forget_pending();
  EXPECT_EQ(queue.next(), SequenceId{1});
}

TEST(FairQueue, WhoWasAwayHasNoCreditAndWhoTookMoreHasADebt) {
  FairQueue queue;
  FairQueue::Flow& busy = queue.enter("busy");
  FairQueue::Flow& greedy = queue.enter("greedy");
  busy.served = 1000;
  greedy.served = 5000;
  EXPECT_EQ(queue.enter("new").served, 1000) << "not from nothing: that would shut the others out";
  queue.leave(greedy);
  EXPECT_EQ(queue.enter("greedy").served, 5000) << "leaving for a moment pays no debt";
  FairQueue::Flow& again = queue.enter("busy");
  EXPECT_EQ(&again, &busy);
}

TEST(FairQueue, WhenAllHaveLeftAllIsForgotten) {
  FairQueue queue;
  FairQueue::Flow& a = queue.enter("a");
  a.served = 700;
  queue.leave(a);
  EXPECT_EQ(queue.enter("b").served, queue.enter("a").served);
}

TEST(BatchTurn, BatchesAreOwedOneTokenForSoManyOfOthers) {
  BatchTurn turn(/*interactive_weight=*/4);
  int64_t batch = 0, others = 0;
  for (int step = 0; step < 1000; ++step) {
    const int64_t got = turn.due(100) ? 100 : 0;  // a step is one's or the other's
    batch += got;
    others += 100 - got;
    turn.planned(/*waited=*/true, 100, got);
  }
  EXPECT_NEAR(static_cast<double>(others) / static_cast<double>(batch), 4.0, 0.1);
}

TEST(BatchTurn, NothingIsOwedToWhoDoesNotWaitOrHasItsShare) {
  BatchTurn turn(4);
  for (int step = 0; step < 100; ++step) turn.planned(/*waited=*/step % 4 != 3, 100, 0);
  EXPECT_FALSE(turn.due(100)) << "it never waited five steps in a row";
  for (int step = 0; step < 100; ++step) turn.planned(true, 100, 20);
  EXPECT_FALSE(turn.due(100)) << "its decodes were its share";
  EXPECT_EQ(batch_places(64, 16), 3u);
  EXPECT_EQ(batch_places(16, 16), 0u);
}

}  // namespace
}  // namespace moestro::orchestrator
