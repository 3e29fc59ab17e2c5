// Experts that are computed without the device's memory, because they are not whole there.

#include <gmock/gmock.h>

#include "tests/tier/tier_fixture.h"

namespace moestro::tier {
namespace {

using ::testing::ElementsAre;
using enum Found;

class ComputedElsewhere : public TierFixture {};

TEST_F(ComputedElsewhere, ACopyThatHasBegunGoesOnWhenNobodyWaits) {
  make(3);
  foresee(-1, {{0, 1, 0.9F}});
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_THAT(route(0, {1, 2, 3}), ElementsAre(kLate, kMiss, kMiss));
  std::vector<DeviceTier::Choice> choices{
      {.full = key(0, 1), .cpu = Nanos{250}}, {.full = key(0, 2), .cpu = Nanos{250}}, {.full = key(0, 3)}};
  tier->choose(choices);
  EXPECT_EQ(choices[0].way, Way::kFull) << "half of it is there";
  EXPECT_EQ(choices[1].way, Way::kCpu);
  EXPECT_EQ(choices[2].way, Way::kFull);
  tier->computed_elsewhere(key(0, 1));
  tier->computed_elsewhere(key(0, 2));
  EXPECT_TRUE(tier->has_begun(key(0, 1)));
  EXPECT_FALSE(tier->has_begun(key(0, 2)));
  EXPECT_EQ(carry(), key(0, 3)) << "a layer waits for it";
  EXPECT_EQ(carry(), key(0, 3));
  EXPECT_TRUE(tier->link_wanted());
  EXPECT_EQ(carry(), key(0, 1)) << "the second half";
  EXPECT_EQ(carry(), std::nullopt) << "nobody needs the other one, and it has no slot";
  tier->released(now, key(0, 3));
  EXPECT_THAT(route(0, {1}), ElementsAre(kHit));
  tier->released(now, key(0, 1));
  EXPECT_EQ(tier->counters().wasted_bytes, 0u);
}

TEST_F(ComputedElsewhere, NoCopyBeginsWhileItIsDecided) {
  make(2);
  foresee(-1, {{0, 1, 0.9F}});
  EXPECT_EQ(carry(), key(0, 1));
  tier->hold_demands(true);
  EXPECT_THAT(route(0, {1, 2}), ElementsAre(kLate, kMiss));
  EXPECT_EQ(carry(), key(0, 1)) << "has begun";
  EXPECT_EQ(carry(), std::nullopt);
  tier->hold_demands(false);
  EXPECT_EQ(carry(), key(0, 2));
}

TEST_F(ComputedElsewhere, ACopyThatNobodyBringsAnyMoreGivesItsSlotBack) {
  make(1);
  foresee(-1, {{0, 1, 0.9F}});
  EXPECT_EQ(carry(), key(0, 1));
  route(0, {1});
  tier->computed_elsewhere(key(0, 1));
  tier->give_up(key(0, 1));
  EXPECT_FALSE(tier->has_begun(key(0, 1)));
  EXPECT_EQ(carry(), std::nullopt);
  EXPECT_THAT(pass(0, {2}), ElementsAre(kMiss));
}

TEST_F(ComputedElsewhere, FillingLeavesWhatIsBeingDecidedAlone) {
  make(16, {}, true, 1, true);
  tier->hold_demands(true);
  route(0, {0});
  EXPECT_EQ(carry(), std::nullopt);
  tier->computed_elsewhere(key(0, 0));
  EXPECT_EQ(carry(), key(0, 0)) << "nobody needs it now: it fills a slot";
}

TEST_F(ComputedElsewhere, AStepThatFailsHoldsNothing) {
  make(2);
  tier->hold_demands(true);
  route(0, {2});
  tier->abandon(now);
  route(0, {2});
  EXPECT_EQ(carry(), key(0, 2));
}

}  // namespace
}  // namespace moestro::tier
