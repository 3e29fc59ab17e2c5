// Full and low copies of experts in one tier.

#include <gmock/gmock.h>

#include "tests/tier/tier_fixture.h"

namespace moestro::tier {
namespace {

using testing::ElementsAre;

/// Four layers of four experts: full copies of four chunks, low ones of one.
class Copies : public TierFixture {
 protected:
  void make_both(int32_t slots, int32_t low_slots) {
    options_ = {4, 4, slots, 400, 100};
    options_.prefetch = false;
    options_.low_slots = low_slots, options_.low_bytes = 100;
    tier = std::make_unique<DeviceTier>(options_, std::make_unique<policy::LruPolicy>(),
                                        std::make_unique<policy::LruPolicy>());
    tier->sources_always_ready();
  }
  Key low(int32_t layer, int32_t expert) const { return options_.low_of(key(layer, expert)); }
  /// The copy that serves; nullopt: none.
  std::optional<Key> serving(Key full, Want want) {
    DeviceTier::Choice choice{.full = full, .want = want};
    tier->choose({&choice, 1});
    return options_.serving(full, choice.way);
  }
  /// The copy that serves is needed from now on.
  Found want(int32_t layer, int32_t expert, Want want) {
    const Key full = key(layer, expert);
    const auto copy = serving(full, want);
    const DeviceTier::Wanted wanted{copy.value_or(full), 1, want, !copy};
    Found found{};
    tier->routed(now, layer, {&wanted, 1}, {&found, 1});
    EXPECT_EQ(tier->inconsistency(), "");
    if (copy) last_ = *copy;
    return found;
  }
  /// And is computed with. Returns the chunks that were carried.
  int pass(int32_t layer, int32_t expert, Want wanted) {
    if (want(layer, expert, wanted) == Found::kSkipped) return 0;
    const int chunks = carry_all();
    EXPECT_TRUE(tier->slot_of(last_));
    tier->released(now, last_);
    return chunks;
  }

  TierOptions options_;
  Key last_ = 0;
};

TEST(ShareRoom, NoMemoryForAnotherCopyIsLeft) {
  for (uint64_t room = 550; room < 6400; room += 50) {
    TierOptions options{4, 4, 0, 400};
    ASSERT_TRUE(share_room(options, room, 0.1, 110)) << room;
    EXPECT_GE(options.slots, 1);
    EXPECT_GE(options.low_slots, 1);
    const uint64_t taken = static_cast<uint64_t>(options.slots) * 400 + static_cast<uint64_t>(options.low_slots) * 110;
    EXPECT_LE(taken, room);
    EXPECT_TRUE(room - taken < 110 || options.low_slots == 16) << room;
  }
}

TEST(ShareRoom, AllFullCopiesNeedNoLowOnes) {
  TierOptions options{4, 4, 0, 400};
  ASSERT_TRUE(share_room(options, 6400, 0.1, 110));
  EXPECT_EQ(options.slots, 16);
  EXPECT_EQ(options.low_slots, 0);
}

TEST(ShareRoom, AFullCopyHasToFit) {
  TierOptions options{4, 4, 0, 400};
  EXPECT_FALSE(share_room(options, 509, 0.1, 110));
}

TEST_F(Copies, AMissIsServedByWhatItsTokensCanDoWith) {
  make_both(2, 2);
  EXPECT_EQ(pass(0, 0, Want::kLow), 1) << "a low copy has a quarter of the bytes";
  EXPECT_EQ(last_, low(0, 0));
  EXPECT_EQ(pass(0, 1, Want::kFull), 4);
  EXPECT_EQ(last_, key(0, 1));
  EXPECT_EQ(want(0, 2, Want::kNone), Found::kSkipped);
  EXPECT_FALSE(tier->in_use(key(0, 2)));
  EXPECT_EQ(carry_all(), 0);
}

TEST_F(Copies, AFullCopyThatIsThereServesEveryWant) {
  make_both(2, 2);
  pass(0, 0, Want::kLow);
  EXPECT_EQ(pass(1, 0, Want::kFull), 4);
  EXPECT_EQ(pass(1, 0, Want::kLow), 0);
  EXPECT_EQ(last_, key(1, 0));
  EXPECT_EQ(pass(1, 0, Want::kNone), 0);
  EXPECT_EQ(last_, key(1, 0)) << "nothing is left out that is there";
}

TEST_F(Copies, ALowCopyServesUntilTheFullOneComes) {
  make_both(2, 2);
  pass(0, 0, Want::kLow);
  EXPECT_EQ(want(0, 0, Want::kNone), Found::kHit);
  EXPECT_EQ(last_, low(0, 0));
  tier->released(now, last_);
  EXPECT_EQ(pass(0, 0, Want::kFull), 4);
  EXPECT_EQ(pass(0, 0, Want::kLow), 0);
  EXPECT_EQ(last_, key(0, 0));
}

TEST_F(Copies, EachKindEvictsItsOwn) {
  make_both(2, 2);
  pass(0, 0, Want::kFull), pass(0, 1, Want::kFull);
  for (int32_t expert = 0; expert < 4; ++expert) pass(1, expert, Want::kLow);
  EXPECT_TRUE(tier->slot_of(key(0, 0)) && tier->slot_of(key(0, 1))) << "low copies have slots of their own";
  EXPECT_FALSE(tier->slot_of(low(1, 1)));
  EXPECT_TRUE(tier->slot_of(low(1, 2)) && tier->slot_of(low(1, 3)));
  pass(2, 0, Want::kFull);
  EXPECT_FALSE(tier->slot_of(key(0, 0)));
  EXPECT_TRUE(tier->slot_of(low(1, 2)) && tier->slot_of(low(1, 3)));
  EXPECT_EQ(tier->resident(), 2);
  EXPECT_EQ(tier->resident(Copy::kLow), 2);
}

TEST_F(Copies, AFullCopyOfWhichLittleIsMissingIsWaitedFor) {
  make_both(2, 2);
  want(0, 0, Want::kFull);
  for (int chunk = 0; chunk < 2; ++chunk) carry();
  EXPECT_EQ(serving(key(0, 0), Want::kLow), low(0, 0)) << "two chunks are missing, a low copy has one";
  carry();
  EXPECT_EQ(serving(key(0, 0), Want::kLow), key(0, 0));
  EXPECT_EQ(serving(key(0, 0), Want::kNone), std::nullopt) << "what may be left out is not waited for";
}

/// The device computes an expert in two chunks' time.
TEST_F(Copies, AFullCopyServesThatComesWhileOthersAreComputed) {
  make_both(4, 2);
  const auto compute = [&](int32_t expert) {
    want(0, expert, Want::kFull), carry_all();
    now += 2 * kChunkTime;
    tier->released(now, last_);
  };
  for (const int32_t expert : {0, 1}) compute(expert);
  const auto ways = [&](std::initializer_list<std::pair<int32_t, Want>> chosen) {
    std::vector<DeviceTier::Choice> choices;
    for (const auto& [expert, want] : chosen) choices.push_back({.full = key(0, expert), .want = want});
    tier->choose(choices);
    std::vector<Way> out;
    for (const DeviceTier::Choice& choice : choices) out.push_back(choice.way);
    return out;
  };
  using enum Way;
  EXPECT_THAT(ways({{0, Want::kFull}, {2, Want::kLow}}), ElementsAre(kFull, kLow)) << "four chunks would come too late";
  EXPECT_THAT(ways({{0, Want::kFull}, {2, Want::kNone}}), ElementsAre(kFull, kLow)) << "a low one does not";
  EXPECT_THAT(ways({{0, Want::kFull}, {1, Want::kLow}, {2, Want::kLow}}), ElementsAre(kFull, kFull, kFull));
  EXPECT_THAT(ways({{0, Want::kFull}, {1, Want::kLow}, {2, Want::kNone}}), ElementsAre(kFull, kFull, kFull));
  // Another layer's copy is on the link.
  want(1, 0, Want::kFull);
  EXPECT_THAT(ways({{0, Want::kFull}, {1, Want::kLow}, {2, Want::kLow}}), ElementsAre(kFull, kFull, kLow));
}

TEST_F(Copies, TheCpuComputesWhatTheLinkWouldBringLater) {
  make_both(2, 2);
  std::vector<DeviceTier::Choice> choices{{.full = key(0, 0), .cpu = Nanos{1}},
                                          {.full = key(0, 1), .want = Want::kLow, .cpu = kChunkTime}};
  const auto ways = [&] {
    tier->choose(choices);
    return std::vector<Way>{choices[0].way, choices[1].way};
  };
  using enum Way;
  EXPECT_THAT(ways(), ElementsAre(kFull, kLow)) << "the link's rate is unknown";
  pass(1, 0, Want::kLow);
  EXPECT_THAT(ways(), ElementsAre(kCpu, kLow));
  choices[1].cpu = kChunkTime - Nanos{1};
  EXPECT_THAT(ways(), ElementsAre(kCpu, kCpu)) << "both before the low copy would have come";
}

TEST_F(Copies, WhatIsNearestGoesFirstOverTheLink) {
  make_both(2, 2);
  const DeviceTier::Wanted wanted[]{{key(0, 0)}, {low(0, 1), 1, Want::kLow}, {low(0, 2), 1, Want::kLow}};
  std::vector<Found> found(3);
  tier->routed(now, 0, wanted, found);
  EXPECT_THAT((std::vector<Key>{*carry(), *carry(), *carry()}), ElementsAre(low(0, 1), low(0, 2), key(0, 0)));
}

TEST_F(Copies, TheFullOneIsNeededInsteadOfALowOneThatFails) {
  make_both(2, 2);
  EXPECT_EQ(want(0, 0, Want::kLow), Found::kMiss);
  tier->copy_failed(now, low(0, 0));
  tier->released(now, low(0, 0));
  const DeviceTier::Wanted full{key(0, 0)};
  Found found{};
  tier->routed(now, 0, {&full, 1}, {&found, 1}, false);
  EXPECT_EQ(found, Found::kMiss);
  EXPECT_EQ(carry_all(), 4);
  tier->released(now, key(0, 0));
  EXPECT_EQ(tier->inconsistency(), "");
}

TEST_F(Copies, AreCountedByWhatTheyServed) {
  make_both(2, 2);
  pass(0, 0, Want::kLow), pass(0, 0, Want::kLow), pass(0, 1, Want::kFull), pass(0, 2, Want::kNone);
  const LayerCounters& of = tier->layer_counters()[0];
  EXPECT_EQ(of.hits, 1u);
  EXPECT_EQ(of.misses, 2u);
  EXPECT_EQ(of.low, 2u);
  EXPECT_EQ(of.skipped, 1u);
}

/// The link is for what its tokens will wait for.
TEST_F(Copies, WhatIsHardlyEverWantedFullIsNotForeseenFull) {
  make_both(2, 2);
  options_.prefetch = true;
  tier = std::make_unique<DeviceTier>(options_, std::make_unique<policy::LruPolicy>(),
                                      std::make_unique<policy::LruPolicy>());
  tier->sources_always_ready();
  for (int token = 0; token < 30; ++token) pass(0, 0, Want::kLow);
  tier->begin_step(now, false);
  foresee(-1, {{0, 0, 0.8F}, {0, 1, 0.8F}});
  EXPECT_EQ(carry(), key(0, 1)) << "nothing is known of its wants";
  EXPECT_EQ(carry_all(), 3) << "and of the other's full copy, nothing";
  EXPECT_FALSE(tier->slot_of(key(0, 0)));
  for (int token = 0; token < 30; ++token) pass(0, 0, Want::kFull);
  for (const int expert : {2, 3}) pass(0, expert, Want::kFull);
  ASSERT_FALSE(tier->slot_of(key(0, 0))) << "others have its slot";
  tier->begin_step(now, false);
  foresee(-1, {{0, 0, 0.9F}});
  EXPECT_EQ(carry(), key(0, 0)) << "it is wanted full again";
}

/// What a forecast brings is full; a low copy serves meanwhile, and the rest of the full one may follow.
TEST_F(Copies, AForecastBringsFullCopies) {
  make_both(2, 2);
  options_.prefetch = true;
  tier = std::make_unique<DeviceTier>(options_, std::make_unique<policy::LruPolicy>(),
                                      std::make_unique<policy::LruPolicy>());
  tier->sources_always_ready();
  tier->begin_step(now, false);
  foresee(-1, {{0, 0, 0.9F}});
  EXPECT_EQ(carry(), key(0, 0));
  EXPECT_EQ(want(0, 0, Want::kLow), Found::kMiss);
  EXPECT_EQ(last_, low(0, 0));
  EXPECT_EQ(carry(), low(0, 0)) << "a demand overtakes it";
  tier->released(now, last_);
  foresee(0, {{0, 0, 0.9F}});
  EXPECT_EQ(carry(), key(0, 0)) << "the next token will probably use it";
  EXPECT_EQ(carry_all(), 2);
  EXPECT_TRUE(tier->slot_of(key(0, 0)));
}

}  // namespace
}  // namespace moestro::tier
