// Which blob is read next, and which leaves the queue.

#include "store/machine/read_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint32_t> order_of(ReadQueue& queue) {
  std::vector<uint32_t> order;
  while (const auto next = queue.next()) {
    order.push_back(next->entry);
    queue.taken(next->entry);
  }
  return order;
}

TEST(ReadQueue, DemandsGoBeforeTheStoresOwnReads) {
  ReadQueue queue;
  queue.want(kStoreSlot, 9, {}, true);
  queue.want(kStoreSlot, 8, {}, true);
  queue.want(0, 6, {7, 3}, true);
  EXPECT_EQ(queue.queued(), 3u);
  EXPECT_EQ(queue.queued_demands(), 1u);
  EXPECT_EQ(queue.next()->read_class, ReadClass::kDemand);
  queue.taken(6);
  EXPECT_EQ(queue.next()->read_class, ReadClass::kScrub);
  EXPECT_THAT(order_of(queue), ElementsAre(9, 8));
}

TEST(ReadQueue, AWorkersDemandsGoByPlanThenLayerThenArrival) {
  ReadQueue queue;
  queue.want(0, 1, {2, 0}, true);
  queue.want(0, 2, {1, 7}, true);
  queue.want(0, 4, {1, 2}, true);
  queue.want(0, 3, {1, 2}, true);
  EXPECT_THAT(order_of(queue), ElementsAre(4, 3, 2, 1));
}

TEST(ReadQueue, WhatTheStoreWantsAndAWorkerDemandsComesUpOnceAsADemand) {
  ReadQueue queue;
  EXPECT_TRUE(queue.want(kStoreSlot, 1, {}, true));
  EXPECT_TRUE(queue.want(kStoreSlot, 2, {}, true));
  EXPECT_FALSE(queue.demanded(2));
  EXPECT_TRUE(queue.want(0, 2, {1, 2}, true));
  EXPECT_FALSE(queue.want(0, 2, {1, 2}, true)) << "asked again";
  EXPECT_FALSE(queue.want(0, 2, {9, 0}, true)) << "for another plan";
  EXPECT_TRUE(queue.demanded(2));
  EXPECT_THAT(order_of(queue), ElementsAre(2, 1));
  EXPECT_THAT(queue.ended(2), ElementsAre(0));
  EXPECT_THAT(queue.ended(1), IsEmpty()) << "no worker waits for it";
  EXPECT_FALSE(queue.wanted(1));
}

TEST(ReadQueue, BlobLeavesWithTheLastSlotThatWantsIt) {
  ReadQueue queue;
  queue.want(0, 1, {1, 4}, true);
  queue.want(0, 2, {1, 4}, true);
  queue.want(3, 1, {9, 4}, true);
  queue.forget(0);
  EXPECT_TRUE(queue.wanted(1));
  EXPECT_FALSE(queue.wanted(2));
  EXPECT_THAT(queue.ended(1), ElementsAre(3));
  queue.forget(3);
  EXPECT_FALSE(queue.next());
}

TEST(ReadQueue, HeldDemandStaysFirstUntilItIsForgotten) {
  ReadQueue queue;
  queue.want(0, 1, {5, 0}, true);
  queue.hold(1);
  queue.want(1, 2, {1, 0}, true);
  EXPECT_EQ(queue.next()->entry, 1u);
  queue.forget(0);
  EXPECT_EQ(queue.next()->entry, 2u);
}

TEST(ReadQueue, CancelledReadIsQueuedAgainIfSomeoneWantsItByNow) {
  ReadQueue queue;
  queue.want(0, 1, {1, 0}, true);
  queue.taken(1);
  queue.forget(0);
  queue.queue_again(1);
  EXPECT_FALSE(queue.next()) << "nobody wants it";
  queue.want(1, 1, {1, 0}, false);
  EXPECT_FALSE(queue.next()) << "its read is being cancelled";
  queue.queue_again(1);
  EXPECT_EQ(queue.next()->entry, 1u);
}

TEST(ReadQueue, WorkersTakeTurns) {
  ReadQueue queue;
  for (uint32_t i = 0; i < 3; ++i) queue.want(0, i, {1, 0}, true), queue.want(1, 10 + i, {900, 0}, true);
  EXPECT_THAT(order_of(queue), ElementsAre(0, 10, 1, 11, 2, 12));
}

}  // namespace
}  // namespace moestro::store
