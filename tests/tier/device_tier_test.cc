// The tier's promises, one by one.

#include <gmock/gmock.h>

#include "tests/tier/tier_fixture.h"

namespace moestro::tier {
namespace {

using ::testing::ElementsAre;
using enum Found;

class DeviceTierTest : public TierFixture {};

TEST_F(DeviceTierTest, WhatIsMissingIsCarriedInOrderAndThenHit) {
  make(4);
  tier->begin_step(now, false);
  EXPECT_THAT(route(0, {2, 1}), ElementsAre(kMiss, kMiss));
  EXPECT_EQ(carry(), key(0, 2));
  EXPECT_FALSE(tier->slot_of(key(0, 2))) << "half of it is not there";
  EXPECT_EQ(carry(), key(0, 2));
  EXPECT_TRUE(tier->slot_of(key(0, 2)));
  EXPECT_EQ(carry_all(), 2);
  tier->released(now, key(0, 2)), tier->released(now, key(0, 1));
  tier->begin_step(now, false);
  EXPECT_THAT(route(0, {2, 3}), ElementsAre(kHit, kMiss));
  EXPECT_EQ(tier->counters().hits, 1u);
  EXPECT_EQ(tier->counters().misses, 3u);
  EXPECT_EQ(tier->counters().moved_bytes, 400u);
}

TEST_F(DeviceTierTest, OneSlotServesAnyNumberOfExperts) {
  make(1);
  tier->begin_step(now, false);
  route(0, {0, 1, 2});
  for (const int32_t e : {0, 1, 2}) {
    EXPECT_EQ(carry_all(), 2) << "the next waits for the slot";
    ASSERT_TRUE(tier->slot_of(key(0, e)));
    tier->released(now, key(0, e));
  }
  EXPECT_EQ(tier->counters().evictions, 2u);
}

TEST_F(DeviceTierTest, WhatIsNeededStays) {
  make(2);
  pass(0, {0, 1});
  route(0, {0});
  route(1, {0, 1});
  EXPECT_EQ(carry_all(), 2) << "one slot is to be had";
  EXPECT_TRUE(tier->slot_of(key(0, 0)));
  tier->released(now, key(0, 0));
  tier->released(now, key(1, 0));
  EXPECT_EQ(carry_all(), 2);
  EXPECT_TRUE(tier->slot_of(key(1, 1)));
}

TEST_F(DeviceTierTest, ATierForAllIsFilledBehindWhatIsWantedAndForeseen) {
  make(16, {}, true, 1, true);
  tier->begin_step(now, false);
  EXPECT_TRUE(tier->link_wanted());
  EXPECT_EQ(carry(), key(0, 0)) << "nobody wants anything";
  foresee(-1, {{1, 2, 0.9F}});
  EXPECT_EQ(carry(), key(1, 2));
  EXPECT_THAT(route(0, {3}), ElementsAre(kMiss));
  EXPECT_EQ(carry(), key(0, 3));
  EXPECT_EQ(carry(), key(0, 3));
  tier->released(now, key(0, 3));
  EXPECT_EQ(carry(), key(1, 2));
  EXPECT_EQ(carry(), key(0, 0)) << "goes on where it was overtaken";
  EXPECT_THAT(route(1, {2}), ElementsAre(kHit));
  tier->released(now, key(1, 2));
  EXPECT_EQ(carry_all(), 2 * 13);
  EXPECT_EQ(tier->resident(), 16);
  EXPECT_FALSE(tier->link_wanted());
  EXPECT_EQ(tier->counters().wasted_bytes, 0u);
}

TEST_F(DeviceTierTest, FillingAsksForSources) {
  TierOptions options{4, 4, 16, 200, 100};
  options.fill = true;
  tier = std::make_unique<DeviceTier>(options, std::make_unique<policy::LruPolicy>());
  std::vector<Key> wanted;
  tier->sources_wanted(3, wanted);
  EXPECT_THAT(wanted, ElementsAre(key(0, 0), key(0, 1), key(0, 2)));
  EXPECT_FALSE(carry()) << "none is ready";
  tier->source_ready(key(0, 1), true);
  EXPECT_EQ(carry_all(), 2);
  EXPECT_TRUE(tier->slot_of(key(0, 1)));
}

TEST_F(DeviceTierTest, NeededAsOftenAsNamed) {
  make(1);
  pass(0, {0});
  route(0, {0}), route(0, {0});
  tier->released(now, key(0, 0));
  route(1, {1});
  EXPECT_EQ(carry_all(), 0);
  tier->released(now, key(0, 0));
  EXPECT_EQ(carry_all(), 2);
}

TEST_F(DeviceTierTest, PrefetchesByProbabilityTimesProximity) {
  make(8);
  tier->begin_step(now, false);
  foresee(-1, {{0, 1, 0.6F}, {3, 0, 0.9F}, {1, 2, 0.9F}, {2, 0, 0.1F}});
  std::vector<Key> order;
  while (const auto k = carry()) order.push_back(*k);
  // 0.9 x 3/4, 0.6 x 4/4, 0.9 x 1/4; 0.1 is under the floor
  EXPECT_THAT(order, ElementsAre(key(1, 2), key(1, 2), key(0, 1), key(0, 1), key(3, 0), key(3, 0)));
  EXPECT_THAT(route(0, {1}), ElementsAre(kHit));
  EXPECT_EQ(tier->counters().prefetched, 3u);
  EXPECT_EQ(tier->counters().prefetched_used, 1u);
}

TEST_F(DeviceTierTest, WithoutProximityProbabilityAlone) {
  make(8, {.proximity = false});
  foresee(-1, {{0, 1, 0.6F}, {3, 0, 0.9F}});
  EXPECT_EQ(carry(), key(3, 0));
}

TEST_F(DeviceTierTest, HorizonLooksNoFurther) {
  make(8, {.horizon = 1});
  foresee(-1, {{0, 1, 0.6F}, {1, 0, 0.9F}});
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_EQ(carry(), std::nullopt);
}

TEST_F(DeviceTierTest, DemandOvertakesAndLateFinishesFirst) {
  make(4);
  tier->begin_step(now, false);
  foresee(-1, {{1, 2, 0.9F}});
  EXPECT_EQ(carry(), key(1, 2));
  EXPECT_THAT(route(0, {0}), ElementsAre(kMiss));
  EXPECT_EQ(carry(), key(0, 0));
  EXPECT_EQ(carry(), key(0, 0));
  tier->released(now, key(0, 0));
  EXPECT_THAT(route(1, {3, 2}), ElementsAre(kMiss, kLate));
  EXPECT_EQ(carry(), key(1, 2)) << "what lacks least";
  EXPECT_TRUE(tier->slot_of(key(1, 2)));
  EXPECT_EQ(tier->counters().wasted_bytes, 0u);
  EXPECT_EQ(tier->counters().prefetched, 0u) << "a demand completed it";
}

TEST_F(DeviceTierTest, FalsePredictionsAreDropped) {
  make(4);
  tier->begin_step(now, false);
  foresee(-1, {{0, 2, 0.9F}, {1, 1, 0.5F}});
  EXPECT_EQ(carry(), key(0, 2));
  route(0, {});
  EXPECT_EQ(tier->counters().dropped_prefetches, 1u);
  EXPECT_EQ(tier->counters().wasted_bytes, 100u);
  EXPECT_EQ(carry(), key(1, 1));
  foresee(0, {{1, 3, 0.9F}});
  EXPECT_EQ(tier->counters().dropped_prefetches, 2u) << "another forecast takes it back";
  EXPECT_EQ(carry(), key(1, 3));
}

TEST_F(DeviceTierTest, AChunkOnTheLinkIsNotDroppedUnderIt) {
  make(1);
  tier->begin_step(now, false);
  foresee(-1, {{0, 2, 0.9F}});
  const auto chunk = tier->next_chunk(now);
  ASSERT_TRUE(chunk);
  EXPECT_EQ(tier->next_chunk(now), std::nullopt) << "one at a time";
  EXPECT_THAT(route(0, {1}), ElementsAre(kMiss));
  EXPECT_EQ(tier->inconsistency(), "");
  tier->chunk_done(now, *chunk, kChunkTime);
  EXPECT_EQ(tier->counters().wasted_bytes, 100u);
  EXPECT_EQ(carry(), key(0, 1)) << "its slot is free now";
}

TEST_F(DeviceTierTest, ALinkMayBeGivenTwoChunks) {
  make(4, {}, true, 2);
  route(0, {0, 1});
  const auto first = tier->next_chunk(now);
  expect_given(first, key(0, 0), 0);
  EXPECT_FALSE(first->last);
  const auto second = tier->next_chunk(now);
  expect_given(second, key(0, 0), 100);
  EXPECT_TRUE(second->last);
  EXPECT_EQ(tier->next_chunk(now), std::nullopt) << "two at a time";
  tier->chunk_done(now, *first, kChunkTime);
  EXPECT_FALSE(tier->slot_of(key(0, 0)));
  const auto third = tier->next_chunk(now);
  expect_given(third, key(0, 1), 0);
  tier->chunk_done(now, *second, kChunkTime);
  EXPECT_TRUE(tier->slot_of(key(0, 0)));
  tier->chunk_done(now, *third, kChunkTime);
  EXPECT_EQ(tier->counters().moved_bytes, 300u);
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_TRUE(tier->slot_of(key(0, 1)));
}

TEST_F(DeviceTierTest, OfTwoExpertsBothMayBeOnTheLink) {
  make(4, {}, true, 2);
  tier->begin_step(now, false);
  foresee(-1, {{1, 2, 0.9F}});
  const auto ahead = tier->next_chunk(now);
  route(0, {1});
  const auto demand = tier->next_chunk(now);
  expect_given(demand, key(0, 1), 0);
  EXPECT_TRUE(demand->demand);
  tier->chunk_done(now, *ahead, kChunkTime);
  expect_given(tier->next_chunk(now), key(0, 1), 100);  // the demand first
}

TEST_F(DeviceTierTest, WhatIsGivenUpFreesItsSlotBehindItsLastChunkOnTheLink) {
  make(1, {}, true, 2);
  tier->begin_step(now, false);
  foresee(-1, {{0, 2, 0.9F}});
  const auto first = tier->next_chunk(now), second = tier->next_chunk(now);
  expect_given(second, key(0, 2), 100);
  EXPECT_THAT(route(0, {1}), ElementsAre(kMiss));
  tier->chunk_done(now, *first, kChunkTime);
  EXPECT_EQ(tier->inconsistency(), "");
  EXPECT_EQ(tier->next_chunk(now), std::nullopt) << "its slot is still being written";
  foresee(0, {{0, 2, 0.9F}});
  EXPECT_EQ(tier->next_chunk(now), std::nullopt) << "what is given up is not gone on with";
  tier->chunk_done(now, *second, kChunkTime);
  EXPECT_EQ(tier->counters().wasted_bytes, 200u);
  EXPECT_EQ(carry(), key(0, 1));
}

TEST_F(DeviceTierTest, WhatIsGivenUpIsNotGoneOnWithBeforeItHasLeftTheLink) {
  make(1, {}, true, 2);
  tier->begin_step(now, false);
  foresee(-1, {{0, 2, 0.9F}});
  const auto first = tier->next_chunk(now);
  expect_given(first, key(0, 2), 0);
  route(0, {1});
  foresee(0, {{0, 2, 0.9F}});
  EXPECT_EQ(tier->next_chunk(now), std::nullopt) << "its slot is for another";
  tier->chunk_done(now, *first, kChunkTime);
  EXPECT_EQ(carry(), key(0, 1));
}

TEST_F(DeviceTierTest, WantedWhileItIsBeingDroppedItGoesOn) {
  make(2);
  tier->begin_step(now, false);
  foresee(-1, {{0, 2, 0.9F}});
  const auto chunk = tier->next_chunk(now);
  route(0, {});
  EXPECT_THAT(route(0, {2}), ElementsAre(kLate));
  tier->chunk_done(now, *chunk, kChunkTime);
  EXPECT_EQ(carry(), key(0, 2));
  EXPECT_TRUE(tier->slot_of(key(0, 2)));
}

TEST_F(DeviceTierTest, APrefetchNeverTakesWhatIsLikelier) {
  make(2, {.choices = 2});
  pass(0, {0, 1});
  foresee(0, {{0, 0, 0.9F}, {0, 1, 0.9F}, {1, 0, 0.4F}});
  EXPECT_EQ(carry(), std::nullopt);
  EXPECT_EQ(tier->counters().guarded, 1u);
  foresee(0, {{0, 0, 0.9F}, {0, 1, 0.2F}, {1, 0, 0.9F}});
  EXPECT_EQ(carry(), key(1, 0));
  EXPECT_FALSE(tier->slot_of(key(0, 1)));
  EXPECT_TRUE(tier->slot_of(key(0, 0)));
}

TEST_F(DeviceTierTest, WithoutGuardItTakesAnything) {
  make(2, {.guard = false});
  pass(0, {0, 1});
  foresee(0, {{0, 0, 0.9F}, {0, 1, 0.9F}, {1, 0, 0.4F}});
  EXPECT_EQ(carry(), key(1, 0));
}

TEST_F(DeviceTierTest, WhatAPrefetchBroughtIsNotTakenByAnotherUntilItsLayerHasSpoken) {
  make(1);
  foresee(-1, {{0, 0, 0.7F}});
  EXPECT_EQ(carry_all(), 2);
  foresee(-1, {{0, 0, 0.7F}, {0, 1, 0.99F}});
  EXPECT_EQ(carry(), std::nullopt);
  route(0, {});
  foresee(0, {{1, 1, 0.99F}});
  EXPECT_EQ(carry(), key(1, 1));
  EXPECT_EQ(tier->counters().wasted_bytes, 200u);
}

TEST_F(DeviceTierTest, ADemandTakesEvenThat) {
  make(1);
  foresee(-1, {{1, 0, 0.9F}});
  EXPECT_EQ(carry_all(), 2);
  EXPECT_THAT(pass(0, {3}), ElementsAre(kMiss));
  foresee(0, {{1, 0, 0.9F}});
  EXPECT_EQ(carry(), key(1, 0));
  EXPECT_THAT(pass(1, {2}), ElementsAre(kMiss)) << "and what is only half there";
}

TEST_F(DeviceTierTest, BudgetRefusesWhatWouldComeTooLate) {
  make(8);
  for (int step = 0; step < 60; ++step) {
    tier->begin_step(now, false);
    for (int layer = 0; layer < 4; ++layer) {
      now += Nanos{150};  // a layer: 1.5 chunks
      pass(layer, {0});
    }
  }
  tier->begin_step(now, false);
  now += Nanos{150};
  pass(0, {0});
  foresee(0, {{1, 1, 0.9F}, {2, 1, 0.9F}});
  EXPECT_EQ(carry(), key(2, 1)) << "two chunks need two layers";
  EXPECT_EQ(tier->counters().over_budget, 1u);
}

TEST_F(DeviceTierTest, APredictorThatIsWrongIsNotListenedTo) {
  make(8);
  uint64_t before = 0, late = 0;
  for (int step = 0; step < 200; ++step) {
    tier->begin_step(now, false);
    for (int layer = 0; layer < 4; ++layer) {
      pass(layer, {step % 2});
      foresee(layer, {{(layer + 1) % 4, 3, 0.9F}});  // never
      carry_all();
    }
    if (step == 20) before = tier->counters().moved_bytes;
    if (step == 180) late = tier->counters().moved_bytes;
  }
  EXPECT_EQ(late, before) << "everything that is used fits";
  EXPECT_GT(tier->counters().below_floor, 300u);
}

TEST_F(DeviceTierTest, APredictorThatIsModestIsBelieved) {
  make(2, {.floor = 0.5F, .budget = false});
  uint64_t hits = 0;
  for (int step = 0; step < 200; ++step) {
    tier->begin_step(now, false);
    if (step == 100) hits = tier->counters().hits;
    for (int layer = 0; layer < 4; ++layer) {
      pass(layer, {step % 4});
      foresee(layer, {{(layer + 1) % 4, (layer == 3 ? step + 1 : step) % 4, 0.2F}});  // always
      carry_all();
    }
  }
  EXPECT_EQ(tier->counters().hits - hits, 400u);
}

TEST_F(DeviceTierTest, TheFloorRisesWhileTooMuchIsWasted) {
  for (const float most : {0.1F, 1.0F}) {
    make(8, {.waste_max = most, .budget = false, .guard = false, .calibrate = false});
    for (int step = 0; step < 400; ++step) {
      tier->begin_step(now, false);
      for (int layer = 0; layer < 4; ++layer) {
        pass(layer, {step % 2});
        foresee(layer, {{(layer + 1) % 4, 2 + step % 2, 0.6F}});  // never
        carry_all();
      }
    }
    if (most < 1) EXPECT_GT(tier->floor(), 0.6F);
    else EXPECT_EQ(tier->floor(), PrefetchOptions{}.floor);
    EXPECT_EQ(tier->counters().throttled > 0, most < 1);
  }
}

TEST_F(DeviceTierTest, WithoutKeepingAnExpertIsGoneOnceItWasUsed) {
  TierOptions options{4, 4, 4, 200, 100};
  options.keep = false;
  tier = std::make_unique<DeviceTier>(options, std::make_unique<policy::LruPolicy>());
  tier->sources_always_ready();
  pass(0, {0, 1});
  EXPECT_EQ(tier->resident(), 0);
  EXPECT_THAT(pass(0, {0}), ElementsAre(kMiss));
}

TEST_F(DeviceTierTest, AScanStreamsTheNextLayerAndLeavesWhatDecodingUses) {
  make(8);
  for (int step = 0; step < 3; ++step) {
    tier->begin_step(now, false);
    for (int layer = 0; layer < 4; ++layer) pass(layer, {0});
  }
  tier->begin_step(now, true);
  const uint64_t before = tier->counters().moved_bytes;
  for (int layer = 0; layer < 4; ++layer) {
    pass(layer, {0, 1, 2, 3}, 0.25F);
    carry_all();
  }
  EXPECT_EQ(tier->counters().moved_bytes - before, 12u * 200u) << "each expert once; one a layer was there";
  tier->begin_step(now, false);
  for (int layer = 0; layer < 4; ++layer) EXPECT_THAT(pass(layer, {0}), ElementsAre(kHit)) << layer;
}

TEST_F(DeviceTierTest, ScanBringsTheNextLayerWhileThisOneIsComputed) {
  make(8);
  tier->begin_step(now, true);
  route(0, {0, 1}, 0.5F);
  EXPECT_EQ(carry_all(), 2 * 8) << "and two layers ahead, as far as there is room";
}

TEST_F(DeviceTierTest, SourcesFirstTheMostUrgent) {
  TierOptions options{4, 4, 4, 200, 100};
  tier = std::make_unique<DeviceTier>(options, std::make_unique<policy::LruPolicy>());
  tier->begin_step(now, false);
  foresee(-1, {{1, 1, 0.9F}, {2, 2, 0.9F}, {3, 3, 0.9F}});
  route(0, {3});
  std::vector<Key> wanted;
  tier->sources_wanted(2, wanted);
  EXPECT_THAT(wanted, ElementsAre(key(0, 3), key(1, 1), key(2, 2)));
  EXPECT_EQ(carry(), std::nullopt);
  tier->source_ready(key(1, 1), true);
  EXPECT_EQ(carry(), key(1, 1));
  tier->source_ready(key(0, 3), true);
  EXPECT_EQ(carry(), key(0, 3));
  tier->sources_wanted(9, wanted);
  EXPECT_THAT(wanted, ElementsAre(key(2, 2), key(3, 3)));
}

TEST_F(DeviceTierTest, ADemandWhoseSourceIsGoneMakesRoom) {
  TierOptions options{4, 4, 1, 200, 100};
  tier = std::make_unique<DeviceTier>(options, std::make_unique<policy::LruPolicy>());
  route(0, {0, 1});
  tier->source_ready(key(0, 0), true);
  EXPECT_EQ(carry(), key(0, 0));
  tier->source_ready(key(0, 0), false), tier->source_ready(key(0, 1), true);
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_EQ(carry(), key(0, 1));
  tier->released(now, key(0, 1));
  tier->source_ready(key(0, 0), true);
  EXPECT_EQ(carry_all(), 2);
}

TEST_F(DeviceTierTest, WhatIsHeldStaysUntilItsLayerHasSpoken) {
  make(2);
  tier->begin_step(now, false);
  pass(1, {0, 1});
  tier->hold(1);
  foresee(-1, {{2, 0, 1.0F}, {2, 1, 1.0F}});
  EXPECT_EQ(carry(), std::nullopt);
  EXPECT_THAT(route(0, {3}), ElementsAre(kMiss));
  EXPECT_EQ(carry(), std::nullopt) << "not even for a demand";
  tier->released(now, key(0, 3));
  EXPECT_THAT(route(1, {0}), ElementsAre(kHit));
  EXPECT_EQ(carry(), key(2, 0)) << "in the place of what was not named";
  EXPECT_TRUE(tier->slot_of(key(1, 0)));
  EXPECT_FALSE(tier->slot_of(key(1, 1)));
}

TEST_F(DeviceTierTest, NothingIsHeldBehindTheEndOfAStep) {
  for (const bool fails : {false, true}) {
    make(1);
    tier->begin_step(now, false);
    pass(1, {0});
    tier->hold(1);
    route(0, {3});
    EXPECT_EQ(carry(), std::nullopt);
    if (fails) tier->abandon(now);
    else tier->released(now, key(0, 3)), tier->begin_step(now, false);
    route(0, {3});
    EXPECT_EQ(carry_all(), 2);
  }
}

TEST_F(DeviceTierTest, AFailedCopyFreesItsSlot) {
  make(1);
  route(0, {0, 1});
  const auto chunk = tier->next_chunk(now);
  tier->copy_failed(now, chunk->key);
  EXPECT_EQ(tier->inconsistency(), "");
  EXPECT_EQ(carry_all(), 2);
  EXPECT_TRUE(tier->slot_of(key(0, 1)));
}

TEST_F(DeviceTierTest, AbandonForgetsWhatWasWanted) {
  make(2);
  pass(0, {0});
  route(0, {0, 1, 2});
  const auto chunk = tier->next_chunk(now);
  tier->abandon(now);
  EXPECT_EQ(tier->inconsistency(), "");
  tier->chunk_done(now, *chunk, kChunkTime);
  EXPECT_EQ(carry(), std::nullopt);
  EXPECT_EQ(tier->resident(), 1);
  tier->begin_step(now, false);
  EXPECT_THAT(pass(0, {0, 1}), ElementsAre(kHit, kMiss));
}

TEST_F(DeviceTierTest, WhatIsUnforeseenIsNotCopied) {
  make(8);
  foresee(-1, {{0, 1, 0.9F}, {1, 2, 0.9F}});
  EXPECT_TRUE(tier->link_wanted());
  tier->unforeseen();
  EXPECT_FALSE(tier->link_wanted());
  EXPECT_EQ(carry_all(), 0);
  EXPECT_THAT(route(0, {1}), ElementsAre(Found::kMiss));
  EXPECT_TRUE(tier->link_wanted());
  EXPECT_EQ(carry_all(), 2);
}

TEST_F(DeviceTierTest, PrefetchOffMovesNothingAhead) {
  make(4, {}, false);
  foresee(-1, {{0, 0, 0.9F}});
  EXPECT_EQ(carry(), std::nullopt);
}

}  // namespace
}  // namespace moestro::tier
