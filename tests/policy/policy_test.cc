// Each policy by hand.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "common/policy/frequency_policy.h"
#include "common/policy/lru_policy.h"
#include "common/policy/make_policy.h"
#include "common/policy/random_policy.h"

namespace moestro::policy {
namespace {

using Kind = Verdict::Kind;
const uint32_t kGroup = 0;
const Judge take_any = [](uint32_t) { return Verdict{}; };
Wanted any(double now = 0) { return {{&kGroup, 1}, now}; }
Verdict news(double time, double weight = 1) { return {Kind::kUsed, {time, weight}}; }

TEST(LruPolicy, OldestGoesFirst) {
  LruPolicy lru;
  lru.inserted(1, kGroup, {10}, false), lru.inserted(2, kGroup, {20}, false), lru.inserted(3, kGroup, {30}, false);
  lru.used(1, {40});
  EXPECT_EQ(lru.victim(any(), take_any), 2u);
  lru.removed(2);
  EXPECT_EQ(lru.victim(any(), take_any), 3u);
  lru.used(3, {5});  // older than known: no news
  EXPECT_EQ(lru.victim(any(), take_any), 3u);
  lru.used(9, {50});  // not in the cache
  EXPECT_EQ(lru.victim(any(), take_any), 3u);
}

TEST(LruPolicy, LearnsLateUsesWhenItAsks) {
  LruPolicy lru;
  lru.inserted(1, kGroup, {10}, false), lru.inserted(2, kGroup, {20}, false), lru.inserted(3, kGroup, {30}, false);
  bool told = false;
  const auto victim = lru.victim(any(), [&](uint32_t key) {
    if (key == 1 && !std::exchange(told, true)) return news(25);
    return Verdict{key == 2 ? Kind::kInUse : Kind::kTake, {}};
  });
  EXPECT_EQ(victim, 1u);  // 2 is pinned; 1, now at 25, still precedes 3
}

TEST(LruPolicy, EntryInConstantUseDoesNotHoldItUp) {
  LruPolicy lru;
  lru.inserted(1, kGroup, {10}, false), lru.inserted(2, kGroup, {20}, false);
  double now = 100;
  EXPECT_EQ(lru.victim(any(), [&](uint32_t) { return news(++now); }), std::nullopt);
  EXPECT_EQ(lru.victim(any(), [](uint32_t) { return Verdict{Kind::kInUse, {}}; }), std::nullopt);
  EXPECT_EQ(lru.victim(any(), take_any), 1u) << "what was in use is asked about again";
}

/// A layer's experts are pinned while it is computed; the first to go may be among them.
TEST(LruPolicy, WhatWasInUseIsSoonProposedAgain) {
  LruPolicy lru;
  for (uint32_t key = 0; key < 32; ++key) lru.inserted(key, kGroup, {1.0 + key}, false);
  const auto unless_first = [](uint32_t key) { return Verdict{key == 0 ? Kind::kInUse : Kind::kTake, {}}; };
  EXPECT_EQ(lru.victim(any(32), unless_first), 1u);
  EXPECT_EQ(lru.victim(any(33), take_any), 1u) << "not asked about each time";
  EXPECT_EQ(lru.victim(any(64), take_any), 0u) << "a use of every key later";
}

TEST(LruPolicy, WhatAScanBringsGoesFirstAndRefreshesNothing) {
  LruPolicy lru;
  lru.inserted(1, kGroup, {10}, false), lru.inserted(2, kGroup, {20}, false);
  lru.used(1, {30, 0.1, true});
  lru.inserted(3, kGroup, {31, 0.1, true}, false), lru.inserted(4, kGroup, {32, 0.1, true}, false);
  EXPECT_EQ(lru.victim(any(), take_any), 4u) << "the newest of the scan's: it comes round again last";
  lru.removed(4);
  EXPECT_EQ(lru.victim(any(), take_any), 3u);
  lru.used(3, {40, 1});
  EXPECT_EQ(lru.victim(any(), take_any), 1u);
}

TEST(LfruPolicy, UsesFadeByHalfLives) {
  FrequencyPolicy lfru(LfruOptions{10});
  lfru.inserted(1, kGroup, {0}, false);
  for (int i = 0; i < 3; ++i) lfru.used(1, {0});  // 4 at time 0
  lfru.inserted(2, kGroup, {15}, false);          // 1 at time 15, when 1 is worth 1.41
  EXPECT_NEAR(lfru.heat(1, 15), 4 * std::exp2(-1.5), 1e-9);
  EXPECT_EQ(lfru.victim(any(), take_any), 2u);
  lfru.used(2, {25});                             // 0.5 + 1 against 4 * 2^-2.5 = 0.71
  EXPECT_EQ(lfru.victim(any(), take_any), 1u);
}

TEST(LfruPolicy, RemembersWhatLeft) {
  FrequencyPolicy lfru(LfruOptions{100});
  lfru.inserted(1, kGroup, {0}, false);
  for (int i = 0; i < 9; ++i) lfru.used(1, {0});
  lfru.removed(1);
  lfru.inserted(2, kGroup, {1}, false), lfru.used(2, {2});
  lfru.inserted(1, kGroup, {3}, false);
  EXPECT_EQ(lfru.victim(any(), take_any), 2u);
}

TEST(LfruPolicy, ForgetsAKeyThatStandsForSomethingElse) {
  FrequencyPolicy lfru(LfruOptions{100});
  lfru.inserted(1, kGroup, {0}, false);
  for (int i = 0; i < 9; ++i) lfru.used(1, {0});
  lfru.forget(1);
  lfru.inserted(2, kGroup, {1}, false), lfru.used(2, {2});
  lfru.inserted(1, kGroup, {3}, false);
  EXPECT_EQ(lfru.victim(any(), take_any), 1u);
}

TEST(LfruPolicy, AScanDoesNotOutweighDecoding) {
  FrequencyPolicy lfru(LfruOptions{1000});
  for (uint32_t key = 0; key < 4; ++key) lfru.inserted(key, kGroup, {1.0 * key}, false), lfru.used(key, {4.0 + key});
  for (uint32_t key = 10; key < 14; ++key) lfru.inserted(key, kGroup, {9, 0.125}, false);
  for (int i = 0; i < 4; ++i) {
    const auto victim = lfru.victim(any(), take_any);
    ASSERT_TRUE(victim);
    EXPECT_GE(*victim, 10u);
    lfru.removed(*victim);
  }
}

TEST(LfuPolicy, CountsAreHalvedAtTheEndOfAPeriodOnly) {
  FrequencyPolicy lfu(LfuOptions{100});
  lfu.inserted(1, kGroup, {0}, false), lfu.used(1, {1}), lfu.used(1, {2});
  lfu.inserted(2, kGroup, {98}, false), lfu.used(2, {99});
  EXPECT_EQ(lfu.victim(any(), take_any), 2u) << "however recent";
  lfu.used(2, {250});  // 2 / 4 + 1 against 3 / 4
  EXPECT_EQ(lfu.victim(any(), take_any), 1u);
}

TEST(Prefetched, KeepsItsPromiseUntilItIsUsed) {
  FrequencyPolicy lfru(LfruOptions{100});
  lfru.inserted(1, kGroup, {0}, false);
  lfru.inserted(2, kGroup, {50}, true);
  EXPECT_EQ(lfru.victim(any(), take_any), 1u);
  lfru.removed(2);
  EXPECT_EQ(lfru.heat(2, 50), 0);
  lfru.inserted(2, kGroup, {50, 0.25}, false);  // the promise left no trace
  EXPECT_EQ(lfru.victim(any(), take_any), 2u);
}

TEST(Sparing, WhatIsNotForThisRequestStaysForTheNext) {
  LruPolicy lru;
  for (uint32_t key = 0; key < 5; ++key) lru.inserted(key, kGroup, {1.0 * key}, false);
  const auto from_three = [](uint32_t key) { return Verdict{key < 3 ? Kind::kSpared : Kind::kTake, {}}; };
  EXPECT_EQ(lru.victim(any(), from_three), 3u);
  EXPECT_EQ(lru.victim(any(), take_any), 0u);
}

TEST(Groups, AVictimComesFromThoseAskedFor) {
  LruPolicy lru;
  lru.inserted(1, 0, {1}, false), lru.inserted(2, 1, {2}, false), lru.inserted(3, 2, {3}, false);
  const std::vector<uint32_t> last{2}, both{1, 2};
  EXPECT_EQ(lru.victim({last, 0}, take_any), 3u);
  EXPECT_EQ(lru.victim({both, 0}, take_any), 2u);
}

TEST(Looks, ManyLateUsesAreCorrectedAFewAtATime) {
  LruPolicy lru;
  constexpr uint32_t kKeys = 10000;
  std::vector<bool> told(kKeys);
  for (uint32_t key = 0; key < kKeys; ++key) lru.inserted(key, kGroup, {1.0 * key}, false);
  size_t looks = 0;
  const auto judge = [&](uint32_t key) {
    ++looks;
    if (told[key]) return Verdict{};
    told[key] = true;
    return news(2.0 * kKeys - key);  // the order is turned round
  };
  const auto first = lru.victim(any(), judge);
  ASSERT_TRUE(first);
  EXPECT_LE(looks, 2 * RankedPolicy::kLooksMax);
  EXPECT_EQ(*first, RankedPolicy::kLooksMax - 1) << "the coldest of those that were looked at";
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(lru.victim(any(), judge));
  EXPECT_EQ(lru.victim(any(), judge), kKeys - 1) << "when all are corrected, the coldest of all";
}

TEST(RandomPolicy, TakesEachNowAndThenAndRepeats) {
  const auto draw = [](uint64_t seed) {
    RandomPolicy random(RandomOptions{seed});
    for (uint32_t key = 0; key < 8; ++key) random.inserted(key, kGroup, {}, false);
    std::vector<uint32_t> drawn;
    for (int i = 0; i < 200; ++i) drawn.push_back(random.victim(any(), take_any).value());
    return drawn;
  };
  const auto drawn = draw(1);
  EXPECT_EQ(std::set<uint32_t>(drawn.begin(), drawn.end()).size(), 8u);
  EXPECT_EQ(drawn, draw(1));
  EXPECT_NE(drawn, draw(2));
}

TEST(RandomPolicy, FindsTheOneThatMayGo) {
  RandomPolicy random;
  for (uint32_t key = 0; key < 100; ++key) random.inserted(key, key % 3, {}, false);
  for (uint32_t key = 0; key < 100; key += 2) random.removed(key);
  const std::vector<uint32_t> all{0, 1, 2};
  const auto only = [](uint32_t key) { return Verdict{key == 97 ? Kind::kTake : Kind::kInUse, {}}; };
  EXPECT_EQ(random.victim({all, 0}, only), 97u);
  random.removed(97);
  EXPECT_EQ(random.victim({all, 0}, only), std::nullopt);
}

TEST(MakePolicy, KnowsItsNamesAndRefusesOthers) {
  for (const std::string& name : policy_names()) {
    const auto made = make_policy(name, 10);
    ASSERT_TRUE(made) << made.status().message();
    EXPECT_EQ((*made)->name(), name);
  }
  EXPECT_EQ(make_policy("fifo", 10).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace moestro::policy
