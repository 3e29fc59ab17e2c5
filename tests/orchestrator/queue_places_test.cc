// The queue's places: one key floods it, others come with little.

#include "orchestrator/scheduler/queue_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;

/// So many of `flow` come until one has no place.
size_t fill(QueuePlaces& places, const std::string& flow) {
  size_t entered = 0;
  while (places.enter(flow).is_ok()) ++entered;
  return entered;
}

TEST(QueuePlaces, OneAloneLeavesAnEighthToOthers) {
  QueuePlaces places(64);
  EXPECT_EQ(fill(places, "a"), 56u);
  EXPECT_EQ(places.enter("a").code(), Code::kExhausted);
  EXPECT_THAT(places.enter("a").message(), HasSubstr("nearly full (56 of 64 sequences), 56 of them are yours, and its "
                                                     "last places are for those who have fewer than 32"));
  EXPECT_EQ(fill(places, "b"), 8u);
  EXPECT_THAT(places.enter("c").message(), HasSubstr("the queue is full (64 sequences)"));
  places.leave("a");
  EXPECT_FALSE(places.enter("a").is_ok()) << "the longest holder's newcomer";
  EXPECT_TRUE(places.enter("c").is_ok());
}

TEST(QueuePlaces, WithoutKeysTheWholeQueueIsThere) {
  QueuePlaces places(64);
  EXPECT_EQ(fill(places, ""), 64u);
}

TEST(QueuePlaces, ASmallQueueHasNothingToKeepBack) {
  for (size_t max = 1; max < 8; ++max) {
    QueuePlaces places(max);
    EXPECT_EQ(fill(places, ""), max);
    EXPECT_EQ(QueuePlaces::most_of("a", max), max);
  }
}

TEST(QueuePlaces, WhoIsAtItsShareIsNotLetInThere) {
  QueuePlaces places(48);
  for (int i = 0; i < 21; ++i) ASSERT_TRUE(places.enter("a").is_ok() && places.enter("b").is_ok());
  ASSERT_EQ(places.size(), QueuePlaces::most_of("a", 48));
  EXPECT_FALSE(places.enter("a").is_ok() || places.enter("b").is_ok()) << "both have more than a third";
  EXPECT_EQ(fill(places, "c"), 6u);
  for (int i = 0; i < 21; ++i) places.leave("a");
  EXPECT_EQ(fill(places, "b"), 15u) << "there is room again for everybody";
}

/// A greedy key sends whenever it may; modest ones have a few sequences at a time, each of which waits for its own
/// answer. Whose sequence ends next is the server's choice: here, any.
TEST(QueuePlaces, ModestKeysAreLetInBesideAFlood) {
  constexpr size_t kMax = 64, kModest = 4, kEach = 2;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    QueuePlaces places(kMax);
    std::map<std::string, size_t> there;
    const auto come = [&](const std::string& flow) {
      const bool entered = places.enter(flow).is_ok();
      there[flow] += entered;
      return entered;
    };
    uint64_t greedy_refused = 0;
    for (int step = 0; step < 5000; ++step) {
      while (come("greedy")) {}
      ++greedy_refused;
      const std::string modest = "modest" + std::to_string(random() % kModest);
      if (there[modest] < kEach) ASSERT_TRUE(come(modest)) << "seed " << seed << ", step " << step;
      size_t ends = random() % places.size();
      for (auto& [flow, count] : there) {
        if (ends < count) {
          --count, places.leave(flow);
          break;
        }
        ends -= count;
      }
      ASSERT_LE(places.size(), kMax);
      ASSERT_GE(places.size() + 1, QueuePlaces::most_of("a", kMax)) << "nobody is sent away from a queue that has room";
    }
    EXPECT_GT(greedy_refused, 0u);
  }
}

TEST(QueuePlaces, NobodyIsForgottenNorCountedTwice) {
  std::mt19937_64 random(5);
  QueuePlaces places(40);
  std::deque<std::string> there;
  for (int step = 0; step < 20000; ++step) {
    const std::string flow(1, static_cast<char>('a' + random() % 6));
    if (random() % 2 == 0 && places.enter(flow).is_ok()) there.push_back(flow);
    if (random() % 3 == 0 && !there.empty()) {
      std::swap(there.front(), there[random() % there.size()]);
      places.leave(there.front()), there.pop_front();
    }
    ASSERT_EQ(places.size(), there.size());
    ASSERT_LE(places.size(), 40u);
  }
  for (const std::string& flow : there) places.leave(flow);
  EXPECT_EQ(fill(places, "a"), 35u) << "as an empty queue";
}

}  // namespace
}  // namespace moestro::orchestrator
