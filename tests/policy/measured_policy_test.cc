// auto: whichever policy misses least.

#include "common/policy/measured_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "common/policy/lru_policy.h"
#include "common/policy/make_policy.h"

namespace moestro::policy {
namespace {

const uint32_t kGroup = 0;
const Judge take_any = [](uint32_t) { return Verdict{}; };

/// Evicts what was used last: right where uses go round in a circle.
class MostRecent final : public CachePolicy {
 public:
  std::string_view name() const override { return "most recent"; }
  void inserted(uint32_t key, uint32_t, const Use&, bool) override { order_.push_back(key); }
  void used(uint32_t key, const Use&) override { std::erase(order_, key), order_.push_back(key); }
  void removed(uint32_t key) override { std::erase(order_, key); }
  std::optional<uint32_t> victim(const Wanted&, const Judge& judge) override {
    for (size_t i = order_.size(); i-- > 0;)
      if (judge(order_[i]).kind == Verdict::Kind::kTake) return order_[i];
    return std::nullopt;
  }
  double heat(uint32_t, double) const override { return 0; }

 private:
  std::vector<uint32_t> order_;
};

std::vector<MeasuredPolicy::Make> two() {
  return {[] { return std::make_unique<LruPolicy>(); }, [] { return std::make_unique<MostRecent>(); }};
}

/// A cache that fetches what it lacks; each use is a layer of its own.
class Cache {
 public:
  Cache(CachePolicy& policy, size_t slots) : policy_(policy), slots_(slots) {}
  bool use(uint32_t key) {
    time_ += 1;
    policy_.at_layer(static_cast<int32_t>(time_) % 4);
    if (in_.contains(key)) return policy_.used(key, {time_}), true;
    if (in_.size() == slots_) {
      const auto out = policy_.victim({{&kGroup, 1}, time_}, take_any);
      EXPECT_TRUE(out && in_.erase(*out) == 1);
      policy_.removed(*out);
    }
    in_.insert(key);
    policy_.inserted(key, kGroup, {time_}, false);
    return false;
  }
  /// Hits of `rounds` rounds through `keys` keys.
  int circle(uint32_t keys, int rounds) {
    int hits = 0;
    for (int r = 0; r < rounds; ++r)
      for (uint32_t key = 0; key < keys; ++key) hits += use(key);
    return hits;
  }
  /// Hits of a working set that moves on slowly.
  int drift(uint32_t keys, int uses) {
    int hits = 0;
    for (int i = 0; i < uses; ++i) hits += use(static_cast<uint32_t>(i / 64 + i % 4) % keys);
    return hits;
  }

 private:
  CachePolicy& policy_;
  const size_t slots_;
  std::set<uint32_t> in_;
  double time_ = 0;
};

TEST(MeasuredPolicy, TakesWhicheverMissesLeastAndChangesItsMind) {
  MeasuredPolicy policy({.slots = 6}, two());
  Cache cache(policy, 6);
  cache.circle(8, 300);
  EXPECT_EQ(policy.chosen(), 1u);
  EXPECT_LT(policy.misses(1), policy.misses(0));
  EXPECT_GT(cache.circle(8, 100), 500) << "LRU hits nothing there";
  cache.drift(200, 8000);
  EXPECT_EQ(policy.chosen(), 0u);
  EXPECT_GT(cache.drift(200, 1000), 900);
}

TEST(MeasuredPolicy, OfALargeCacheASampleIsEnough) {
  MeasuredPolicy policy({.slots = 1200}, two());
  Cache cache(policy, 1200);
  cache.circle(1600, 12);
  EXPECT_EQ(policy.chosen(), 1u);
  EXPECT_GT(cache.circle(1600, 1), 1000);
}

TEST(MeasuredPolicy, OneAloneIsNotMeasured) {
  MeasuredPolicy policy({.slots = 6}, {two()[0]});
  Cache cache(policy, 6);
  EXPECT_EQ(cache.circle(8, 300), 0);
  EXPECT_EQ(policy.chosen(), 0u);
}

/// Two layers of two experts, three slots: what the layer uses next is not what its first expert takes the place of.
TEST(MeasuredPolicy, WhatALayerUsesLaterStaysInTheShadowsToo) {
  MeasuredPolicy policy({.slots = 3, .window_uses = 4}, two());
  double time = 0;
  for (int step = 0; step < 100; ++step)
    for (uint32_t layer = 0; layer < 2; ++layer) {
      policy.at_layer(static_cast<int32_t>(layer));
      for (const uint32_t key : {2 * layer, 2 * layer + 1}) policy.used(key, {time += 1});
    }
  const double all_missed = 4 / (1 - 0.75);  // of windows that count three quarters of the one after them
  EXPECT_NEAR(policy.misses(0) / all_missed, 0.5, 0.05) << "LRU: each layer finds one of its two";
}

TEST(MeasuredPolicy, WhatALayerUsesAtOnceStaysInTheShadows) {
  // Layers of three experts where two slots are: whatever is evicted, all of the layer are wanted together.
  const auto policy = make_device_policy("auto", {4, 8, 2});
  ASSERT_TRUE(policy.is_ok());
  std::mt19937_64 random(3);
  double time = 0;
  for (int step = 0; step < 3000; ++step) {
    (*policy)->at_layer(step % 4);
    for (int i = 0; i < 3; ++i) {
      const auto key = static_cast<uint32_t>((step % 4) * 8 + static_cast<int>(random() % 8));
      (*policy)->inserted(key, kGroup, {time += 1}, false);
      (*policy)->removed(key);
    }
  }
  EXPECT_EQ((*policy)->victim({{&kGroup, 1}, time}, take_any), std::nullopt)
      << "the cache is empty, whatever lies in the shadows";
}

TEST(MeasuredPolicy, WhereAllFitAutoHasNothingToMeasure) {
  const auto policy = make_device_policy("auto", {2, 4, 8});
  ASSERT_TRUE(policy.is_ok());
  for (uint32_t key = 0; key < 8; ++key) (*policy)->inserted(key, kGroup, {1.0 + key}, false);
  (*policy)->used(0, {20});
  EXPECT_TRUE((*policy)->victim({{&kGroup, 1}, 21}, take_any).has_value());
}

}  // namespace
}  // namespace moestro::policy
