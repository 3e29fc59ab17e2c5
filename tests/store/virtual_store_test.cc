// The store of a replay: a worker that pins, asks and waits, on a clock of its own.

#include "store/replay/virtual_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/policy/make_policy.h"

namespace moestro::store {
namespace {

using tier::Found;
using tier::Key;

constexpr uint64_t kBlob = 8192;

class VirtualStoreTest : public ::testing::Test {
 protected:
  void open(uint32_t held, const char* policy = "lru", uint32_t experts = 16) {
    const VirtualStoreOptions options{.experts = experts, .experts_held = held, .expert_bytes = kBlob,
                                      .chunk_bytes = kBlob / 4, .drive = {kBlob * 1e6, Nanos{100}}};
    auto made = VirtualStore::create(options, *policy::make_policy(policy, experts));
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    store_ = std::move(*made);
  }
  /// Waits for the next arrival.
  Key wait() {
    while (true) {
      if (const auto key = store_->take_arrival()) return *key;
      const auto next = store_->next_event();
      if (!next) return UINT32_MAX;
      store_->advance(now_ = *next);
    }
  }
  /// Uses an expert for no time.
  Found use(Key key, float weight = 1) {
    const Found found = store_->try_pin(key, weight);
    if (found != Found::kHit) {
      store_->fetch({&key, 1}, 0, 0);
      EXPECT_EQ(wait(), key);
    }
    store_->unpin(key);
    return found;
  }
  std::unique_ptr<VirtualStore> store_;
  Nanos now_{0};
};

TEST_F(VirtualStoreTest, AReadTakesLatencyAndBytes) {
  open(4);
  EXPECT_EQ(use(3), Found::kMiss);
  EXPECT_EQ(now_, Nanos{100 + 1000});
  EXPECT_EQ(use(3), Found::kHit);
  EXPECT_EQ(now_, Nanos{1100});
  const tier::HostCounters c = store_->counters();
  EXPECT_EQ(c.hits, 1u);
  EXPECT_EQ(c.misses, 1u);
  EXPECT_EQ(c.reads, 1u);
  EXPECT_EQ(c.read_bytes, kBlob);
  EXPECT_EQ(c.drive_busy, now_);
}

TEST_F(VirtualStoreTest, ItHoldsAsManyAsItHasRoomFor) {
  open(4);
  for (Key key = 0; key < 4; ++key) use(key);
  EXPECT_EQ(store_->counters().evictions, 0u);
  for (Key key = 0; key < 4; ++key) EXPECT_TRUE(store_->holds(key)) << key;
  use(4);
  EXPECT_EQ(store_->counters().evictions, 1u);
  EXPECT_FALSE(store_->holds(0)) << "the least recently used";
  EXPECT_FALSE(store_->fits_all());
  open(16);
  EXPECT_TRUE(store_->fits_all());
}

/// What a worker may pin is bounded: the rest is asked for as it lets go.
TEST_F(VirtualStoreTest, MoreThanTheMemoryHoldsArrivesAsRoomIsMade) {
  open(3);
  const std::vector<Key> keys{0, 1, 2, 3, 4, 5, 6, 7};
  for (const Key key : keys) EXPECT_EQ(store_->try_pin(key, 1), Found::kMiss);
  store_->fetch(keys, 0, 0);
  for (const Key key : keys) {
    EXPECT_EQ(wait(), key);
    store_->unpin(key);
  }
  EXPECT_EQ(store_->counters().read_bytes, 8 * kBlob);
  EXPECT_EQ(store_->counters().evictions, 5u);
}

TEST_F(VirtualStoreTest, NothingArrivesWhileEverythingIsPinned) {
  open(2);
  for (const Key key : {0u, 1u}) {
    use(key);
    EXPECT_EQ(store_->try_pin(key, 1), Found::kHit);
  }
  EXPECT_EQ(store_->try_pin(2, 1), Found::kMiss);
  const Key wanted = 2;
  store_->fetch({&wanted, 1}, 0, 0);
  EXPECT_EQ(wait(), UINT32_MAX);
  store_->unpin(0);
  EXPECT_EQ(wait(), wanted);
}

TEST_F(VirtualStoreTest, WhatIsForeseenIsReadAheadAndFound) {
  open(4);
  const std::vector<tier::ForeseenKey> foreseen{{5, 0.9F, Nanos{5000}}, {6, 0.1F, Nanos{5000}}};
  store_->foresee(foreseen, false, true);
  store_->advance(now_ += Nanos{5000});
  EXPECT_TRUE(store_->holds(5));
  EXPECT_FALSE(store_->holds(6)) << "below the floor";
  EXPECT_EQ(use(5), Found::kHit);
  const tier::HostCounters c = store_->counters();
  EXPECT_EQ(c.prefetched, 1u);
  EXPECT_EQ(c.prefetched_used, 1u);
  EXPECT_EQ(c.brought, 1u) << "it was read since its last use";
  EXPECT_EQ(use(5), Found::kHit);
  EXPECT_EQ(store_->counters().brought, 1u);
}

TEST_F(VirtualStoreTest, WhatIsBeingReadAheadIsLate) {
  open(4);
  const std::vector<tier::ForeseenKey> foreseen{{5, 0.9F, Nanos{5000}}};
  store_->foresee(foreseen, false, true);
  store_->advance(now_ += Nanos{400});
  EXPECT_EQ(use(5), Found::kLate);
  EXPECT_EQ(now_, Nanos{1100}) << "the read went on";
  EXPECT_EQ(store_->counters().late, 1u);
  EXPECT_EQ(store_->counters().read_bytes, kBlob);
}

TEST_F(VirtualStoreTest, WhatIsForeseenNoLongerIsGivenUp) {
  open(4);
  const std::vector<tier::ForeseenKey> foreseen{{5, 0.9F, Nanos{5000}}};
  store_->foresee(foreseen, false, true);
  store_->advance(now_ += Nanos{400});
  store_->foresee({}, false, false);
  store_->advance(now_ += Nanos{5000});
  EXPECT_FALSE(store_->holds(5));
  const tier::HostCounters c = store_->counters();
  EXPECT_EQ(c.dropped, 1u);
  EXPECT_EQ(c.wasted_bytes, c.read_bytes);
  EXPECT_EQ(c.read_bytes, kBlob / 2) << "the chunk at hand is read to its end";
}

/// What the worker counts is what the machine counts, if nothing is foreseen.
TEST_F(VirtualStoreTest, TheWorkersCountsAreTheMachines) {
  for (const char* policy : {"lru", "interval", "lfru", "lfu"}) {
    open(6, policy);
    std::mt19937_64 random(5);
    uint64_t hits = 0;
    for (int i = 0; i < 500; ++i)
      hits += use(static_cast<Key>(std::min(random() % 16, random() % 16)), i % 3 == 0 ? 0.25F : 1) == Found::kHit;
    const tier::HostCounters c = store_->counters();
    const StoreMachine::Counters& machine = store_->machine().counters();
    EXPECT_EQ(c.hits, hits) << policy;
    EXPECT_EQ(c.misses, machine.fetches) << policy;
    EXPECT_EQ(c.reads, machine.loads) << policy;
    EXPECT_EQ(c.read_bytes, machine.loads * kBlob) << policy;
    EXPECT_EQ(c.evictions, machine.evictions) << policy;
    EXPECT_EQ(machine.evictions, machine.loads - 6) << policy;
    EXPECT_EQ(c.prefetched + c.late + c.dropped, 0u) << policy;
    EXPECT_EQ(now_, Nanos(static_cast<int64_t>(machine.loads) * 1100)) << policy;
    EXPECT_EQ(store_->machine().inconsistency(), "") << policy;
  }
}

}  // namespace
}  // namespace moestro::store
