#pragma once
// A tier, a link that carries what it is told to, and short words for what happens.

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "common/policy/lru_policy.h"
#include "common/tier/device_tier.h"

namespace moestro::tier {

constexpr Nanos kChunkTime{100};

class TierFixture : public ::testing::Test {
 protected:
  /// Four layers of four experts of two chunks each.
  void make(int32_t slots, PrefetchOptions how = {}, bool prefetch = true, int32_t chunks_given = 1,
            bool fill = false) {
    TierOptions options{4, 4, slots, 200, 100};
    options.prefetch = prefetch, options.how = how, options.chunks_given = chunks_given, options.fill = fill;
    tier = std::make_unique<DeviceTier>(options, std::make_unique<policy::LruPolicy>());
    tier->sources_always_ready();
  }
  static Key key(int32_t layer, int32_t expert) { return static_cast<Key>(layer * 4 + expert); }

  std::vector<Found> route(int32_t layer, std::initializer_list<int32_t> experts, float weight = 1) {
    std::vector<DeviceTier::Wanted> wanted;
    for (const int32_t e : experts) wanted.push_back({key(layer, e), weight});
    std::vector<Found> found(wanted.size());
    tier->routed(now, layer, wanted, found);
    return found;
  }
  /// One chunk over the link; its key, or none.
  std::optional<Key> carry() {
    const auto chunk = tier->next_chunk(now);
    if (!chunk) return std::nullopt;
    now += kChunkTime;
    tier->chunk_done(now, *chunk, kChunkTime);
    EXPECT_EQ(tier->inconsistency(), "");
    return chunk->key;
  }
  /// The link has been given this, and has not brought it.
  void expect_given(const std::optional<Chunk>& chunk, Key wanted, uint64_t offset) {
    ASSERT_TRUE(chunk);
    EXPECT_EQ(chunk->key, wanted);
    EXPECT_EQ(chunk->offset, offset);
    EXPECT_EQ(tier->inconsistency(), "");
  }
  int carry_all() {
    int chunks = 0;
    while (carry()) ++chunks;
    return chunks;
  }
  /// Routes, carries what is missing, computes.
  std::vector<Found> pass(int32_t layer, std::initializer_list<int32_t> experts, float weight = 1) {
    const auto found = route(layer, experts, weight);
    for (const int32_t e : experts) {
      while (!tier->slot_of(key(layer, e)) && carry()) {}
      EXPECT_TRUE(tier->slot_of(key(layer, e)));
      tier->released(now, key(layer, e));
    }
    return found;
  }
  struct Guess {
    int32_t layer, expert;
    float p;
  };
  void foresee(int32_t layer, std::initializer_list<Guess> guesses) {
    prediction::Forecast forecast(4, 4);
    for (const Guess& g : guesses) forecast.row(g.layer)[static_cast<size_t>(g.expert)] = g.p;
    tier->foresee(now, layer, forecast);
    EXPECT_EQ(tier->inconsistency(), "");
  }

  std::unique_ptr<DeviceTier> tier;
  Nanos now{0};
};

}  // namespace moestro::tier
