// Experts that are computed without the device's memory, because they are not whole there.

#include <gmock/gmock.h>

#include "tests/tier/tier_fixture.h"

namespace moestro::tier {
namespace {

using ::testing::ElementsAre;
using enum Found;

class ComputedElsewhere : public TierFixture {};

TEST_F(ComputedElsewhere, KeepsWhatWasCopied) {
  make(2);
  foresee(-1, {{0, 1, 0.9F}});
  EXPECT_EQ(carry(), key(0, 1));
  EXPECT_THAT(route(0, {1, 2}), ElementsAre(kLate, kMiss));
  EXPECT_EQ(tier->missing_bytes(key(0, 1)), 100u);
  EXPECT_EQ(tier->missing_bytes(key(0, 2)), 200u);
  tier->computed_elsewhere(key(0, 1));
  tier->computed_elsewhere(key(0, 2));
  EXPECT_EQ(carry(), std::nullopt) << "nobody waits for them";
  EXPECT_EQ(tier->missing_bytes(key(0, 1)), 100u);
  EXPECT_THAT(route(0, {1}), ElementsAre(kLate));
  EXPECT_EQ(carry_all(), 1) << "the second half";
  tier->released(now, key(0, 1));
  EXPECT_EQ(tier->counters().wasted_bytes, 0u);
}

}  // namespace
}  // namespace moestro::tier
