// Who is read next, and who leaves the queue.

#include "store/machine/read_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
constexpr ReadClass kDemand = ReadClass::kDemand, kPrefetch = ReadClass::kPrefetch, kScrub = ReadClass::kScrub;

std::vector<uint32_t> order_of(ReadQueue& queue) {
  std::vector<uint32_t> order;
  while (const auto next = queue.next()) {
    order.push_back(next->entry);
    queue.taken(next->entry);
  }
  return order;
}

TEST(ReadQueue, DemandsGoBeforePrefetchesAndTheseBeforeScrubbing) {
  ReadQueue queue;
  queue.want(kStoreSlot, 9, {}, kScrub, true);
  queue.want(0, 5, {1, 0}, kPrefetch, true);
  queue.want(0, 6, {7, 3}, kDemand, true);
  EXPECT_EQ(queue.queued(kPrefetch), 1u);
  EXPECT_THAT(order_of(queue), ElementsAre(6, 5, 9));
}

TEST(ReadQueue, WithinAClassByPlanThenLayer) {
  ReadQueue queue;
  queue.want(0, 1, {2, 0}, kPrefetch, true);
  queue.want(0, 2, {1, 7}, kPrefetch, true);
  queue.want(0, 3, {1, 2}, kPrefetch, true);
  queue.want(0, 4, {1, 2}, kPrefetch, true);
  EXPECT_THAT(order_of(queue), ElementsAre(3, 4, 2, 1));
}

TEST(ReadQueue, PrefetchThatIsDemandedComesUpAsADemandOnce) {
  ReadQueue queue;
  EXPECT_TRUE(queue.want(0, 1, {1, 1}, kPrefetch, true));
  EXPECT_TRUE(queue.want(0, 2, {1, 2}, kPrefetch, true));
  EXPECT_TRUE(queue.want(0, 2, {1, 2}, kDemand, true));
  EXPECT_FALSE(queue.want(0, 2, {1, 2}, kDemand, true)) << "asked again";
  EXPECT_TRUE(queue.demanded(2));
  EXPECT_THAT(order_of(queue), ElementsAre(2, 1));
  EXPECT_THAT(queue.ended(2), ElementsAre(0));
  EXPECT_THAT(queue.ended(1), IsEmpty()) << "nobody waits for a prefetch";
  EXPECT_FALSE(queue.wanted(1));
}

TEST(ReadQueue, BlobLeavesWithTheLastWhoWantsIt) {
  ReadQueue queue;
  queue.want(0, 1, {1, 4}, kPrefetch, true);
  queue.want(0, 1, {2, 4}, kPrefetch, true);
  queue.want(3, 1, {9, 4}, kPrefetch, true);
  constexpr std::array kDropLayer4{LayerRank{4, LayerRank::kDrop}};
  EXPECT_THAT(queue.steer(0, 1, kDropLayer4), IsEmpty()) << "plan 2 and worker 3 still want it";
  EXPECT_THAT(queue.steer(3, 100, kDropLayer4), IsEmpty());
  EXPECT_THAT(queue.steer(0, 2, kDropLayer4), ElementsAre(1));
  EXPECT_FALSE(queue.next());
}

TEST(ReadQueue, SteeringReordersAndDropsByLayerInOneCall) {
  ReadQueue queue;
  for (uint32_t layer = 0; layer < 4; ++layer) queue.want(0, 10 + layer, {1, layer}, kPrefetch, true);
  queue.want(0, 20, {2, 0}, kPrefetch, true);
  queue.want(1, 30, {1, 3}, kPrefetch, true);
  const std::array layers{LayerRank{3, 0}, LayerRank{0, 5}, LayerRank{1, LayerRank::kDrop}};
  EXPECT_THAT(queue.steer(0, 1, layers), ElementsAre(11));
  std::vector<uint32_t> of_worker_0;
  for (const uint32_t entry : order_of(queue))
    if (entry != 30) of_worker_0.push_back(entry);
  EXPECT_THAT(of_worker_0, ElementsAre(13, 12, 10, 20))
      << "rank 0, 2, 5 of plan 1, then plan 2, whose layers were not meant";
}

TEST(ReadQueue, SteeringLeavesDemandsAlone) {
  ReadQueue queue;
  queue.want(0, 1, {1, 4}, kDemand, true);
  EXPECT_THAT(queue.steer(0, 9, std::array{LayerRank{4, LayerRank::kDrop}}), IsEmpty());
  EXPECT_TRUE(queue.next());
}

TEST(ReadQueue, WithdrawnDemandsLeaveThePrefetches) {
  ReadQueue queue;
  queue.want(0, 1, {1, 0}, kDemand, true);
  queue.want(0, 2, {1, 0}, kDemand, true);
  queue.want(0, 2, {2, 0}, kPrefetch, true);
  queue.want(0, 3, {2, 0}, kPrefetch, true);
  EXPECT_THAT(queue.withdraw_demands(0), ElementsAre(1));
  EXPECT_EQ(queue.queued(kPrefetch), 2u);
  EXPECT_THAT(queue.forget(0), UnorderedElementsAre(2, 3));
}

TEST(ReadQueue, HeldDemandStaysFirstUntilItIsWithdrawn) {
  ReadQueue queue;
  queue.want(0, 1, {5, 0}, kDemand, true);
  queue.hold(1);
  queue.want(1, 2, {1, 0}, kDemand, true);
  EXPECT_EQ(queue.next()->entry, 1u);
  queue.withdraw_demands(0);
  EXPECT_EQ(queue.next()->entry, 2u);
}

TEST(ReadQueue, GivenUpReadIsQueuedAgainForWhoWantsItByNow) {
  ReadQueue queue;
  queue.want(0, 1, {1, 0}, kPrefetch, true);
  queue.taken(1);
  queue.steer(0, 9, std::array{LayerRank{0, LayerRank::kDrop}});
  queue.queue_again(1);
  EXPECT_FALSE(queue.next()) << "nobody wants it";
  queue.want(1, 1, {1, 0}, kDemand, false);
  EXPECT_FALSE(queue.next()) << "its reading is being given up";
  queue.queue_again(1);
  EXPECT_EQ(queue.next()->entry, 1u);
}

TEST(ReadQueue, WantsOfOneWorkerForOneBlobAreBounded) {
  ReadQueue queue;
  for (uint64_t plan = 0; plan < 1000; ++plan) queue.want(0, 1, {plan, 0}, kPrefetch, true);
  EXPECT_THAT(queue.steer(0, ReadQueue::kWantsMax - 1, std::array{LayerRank{0, LayerRank::kDrop}}), ElementsAre(1))
      << "the others were not kept";
}

TEST(ReadQueue, WorkersTakeTurnsInEveryClass) {
  for (const ReadClass read_class : {kDemand, kPrefetch}) {
    ReadQueue queue;
    for (uint32_t i = 0; i < 3; ++i)
      queue.want(0, i, {1, 0}, read_class, true), queue.want(1, 10 + i, {900, 0}, read_class, true);
    EXPECT_THAT(order_of(queue), ElementsAre(0, 10, 1, 11, 2, 12));
  }
}

}  // namespace
}  // namespace moestro::store
