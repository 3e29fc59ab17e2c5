// Why a missing expert was late.

#include <gmock/gmock.h>

#include "tests/tier/tier_fixture.h"

namespace moestro::tier {
namespace {

using ::testing::ElementsAre;
using enum Found;
using enum LateCause;

/// A link that has been measured: an expert takes two chunks' time.
class LateCauseTest : public TierFixture {
 protected:
  static constexpr Nanos kCopyTime = 2 * kChunkTime;
  void make_measured(int32_t slots, PrefetchOptions how = {}) {
    make(slots, how);
    pass(3, {3});
  }
  LateCause cause(int32_t layer, int32_t expert) const { return tier->late_cause(key(layer, expert)); }
};

TEST_F(LateCauseTest, NoForecast) {
  make_measured(8);
  EXPECT_THAT(route(0, {1}), ElementsAre(kMiss));
  EXPECT_EQ(cause(0, 1), kNotForeseen);
}

TEST_F(LateCauseTest, TooUnlikelyForAPrefetch) {
  make_measured(8);
  foresee(-1, {{0, 1, 0.1F}});
  now += 10 * kCopyTime;
  route(0, {1});
  EXPECT_EQ(cause(0, 1), kNotForeseen);
}

TEST_F(LateCauseTest, AForecastThatWasTakenBack) {
  for (const bool by_another : {true, false}) {
    make_measured(8);
    foresee(-1, {{1, 1, 0.9F}});
    if (by_another) foresee(-1, {{1, 2, 0.9F}});
    else tier->unforeseen();
    now += 10 * kCopyTime;
    route(1, {1});
    EXPECT_EQ(cause(1, 1), kNotForeseen) << by_another;
  }
}

TEST_F(LateCauseTest, AForecastIsOfOnePassOnly) {
  make_measured(8);
  foresee(-1, {{0, 1, 0.9F}, {0, 2, 0.9F}});
  now += 10 * kCopyTime;
  pass(0, {1});
  route(0, {2});
  EXPECT_EQ(cause(0, 2), kNotForeseen) << "the layer was routed since";
}

TEST_F(LateCauseTest, LessTimeThanACopyTakes) {
  make_measured(8);
  foresee(-1, {{0, 1, 0.9F}, {0, 2, 0.8F}});
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_THAT(route(0, {1, 2}), ElementsAre(kLate, kMiss));
  EXPECT_EQ(cause(0, 1), kForeseenTooLate) << "half of it is there";
  EXPECT_EQ(cause(0, 2), kForeseenTooLate) << "not even an idle link would have brought it";
}

TEST_F(LateCauseTest, TheFirstForecastCounts) {
  make_measured(8);
  foresee(-1, {{1, 1, 0.9F}});
  now += kCopyTime;
  route(0, {});
  foresee(0, {{1, 1, 0.5F}});
  route(1, {1});
  EXPECT_EQ(cause(1, 1), kLinkBusy) << "the link had time since the first";
}

TEST_F(LateCauseTest, TheLinkCarriedOthersFirst) {
  make_measured(8);
  foresee(-1, {{0, 1, 0.9F}, {0, 2, 0.8F}});
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_EQ(carry(), key(0, 2));
  EXPECT_THAT(route(0, {1, 2}), ElementsAre(kHit, kLate));
  EXPECT_EQ(cause(0, 2), kLinkBusy);
}

TEST_F(LateCauseTest, ASourceThatDoesNotComeIsABusyDrive) {
  TierOptions options{4, 4, 8, 200, 100};
  tier = std::make_unique<DeviceTier>(options, std::make_unique<policy::LruPolicy>());
  foresee(-1, {{0, 1, 0.9F}});
  now += 10 * kCopyTime;
  EXPECT_EQ(carry(), std::nullopt);
  route(0, {1});
  EXPECT_EQ(cause(0, 1), kLinkBusy);
}

TEST_F(LateCauseTest, WhatIsThereIsMoreLikely) {
  make_measured(2, {.choices = 2});
  pass(0, {0, 1});
  foresee(0, {{0, 0, 0.9F}, {0, 1, 0.9F}, {1, 0, 0.4F}});
  EXPECT_EQ(carry(), std::nullopt);
  now += kCopyTime;
  route(1, {0});
  EXPECT_EQ(cause(1, 0), kNoRoom);
}

TEST_F(LateCauseTest, ADemandTookItsSlot) {
  make(1);
  foresee(-1, {{1, 0, 0.9F}});
  EXPECT_EQ(carry_all(), 2);
  pass(0, {3});
  EXPECT_THAT(route(1, {0}), ElementsAre(kMiss));
  EXPECT_EQ(cause(1, 0), kNoRoom);
}

TEST_F(LateCauseTest, APromptsLayersAreForeseenAsAWhole) {
  make_measured(8);
  tier->begin_step(now, true);
  now += kCopyTime;
  route(0, {0});
  EXPECT_EQ(cause(0, 0), kLinkBusy);
  route(1, {0});
  EXPECT_EQ(cause(1, 0), kLinkBusy);
  tier->begin_step(now, false);
  route(2, {0});
  EXPECT_EQ(cause(2, 0), kNotForeseen) << "what was planned for a prompt is void for decoding";
}

}  // namespace
}  // namespace moestro::tier
