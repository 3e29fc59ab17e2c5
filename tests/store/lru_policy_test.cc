#include "common/policy/lru_policy.h"

#include <gtest/gtest.h>

namespace moestro::policy {
namespace {

using Kind = Verdict::Kind;
const auto take_any = [](uint32_t, uint64_t) { return Verdict{Kind::kTake, 0}; };

TEST(LruPolicy, OldestGoesFirst) {
  LruPolicy lru;
  lru.inserted(1, 10), lru.inserted(2, 20), lru.inserted(3, 30);
  lru.used(1, 40);
  EXPECT_EQ(lru.victim(take_any), 2u);
  lru.removed(2);
  EXPECT_EQ(lru.victim(take_any), 3u);
  lru.used(3, 5);  // older than known: no news
  EXPECT_EQ(lru.victim(take_any), 3u);
}

TEST(LruPolicy, LearnsLateUsesWhenItAsks) {
  LruPolicy lru;
  lru.inserted(1, 10), lru.inserted(2, 20), lru.inserted(3, 30);
  const auto seen = [](uint32_t key, uint64_t known) {
    if (key == 1 && known < 25) return Verdict{Kind::kNewer, 25};
    return Verdict{key == 2 ? Kind::kSkip : Kind::kTake, 0};
  };
  EXPECT_EQ(lru.victim(seen), 1u);  // 2 is pinned; 1, now at 25, still precedes 3
}

TEST(LruPolicy, EntryInConstantUseDoesNotHoldItUp) {
  LruPolicy lru;
  lru.inserted(1, 10), lru.inserted(2, 20);
  uint64_t now = 100;
  EXPECT_EQ(lru.victim([&](uint32_t, uint64_t) { return Verdict{Kind::kNewer, ++now}; }), std::nullopt);
  EXPECT_EQ(lru.victim([](uint32_t, uint64_t) { return Verdict{Kind::kSkip, 0}; }), std::nullopt);
}

}  // namespace
}  // namespace moestro::policy
