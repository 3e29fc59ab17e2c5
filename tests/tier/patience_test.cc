// When a prefetch may take the slot of another expert.

#include "tests/tier/tier_fixture.h"

namespace moestro::tier {
namespace {

/// Each layer takes ten times as long as a chunk, and an expert has two chunks.
class PatienceTest : public TierFixture {
 protected:
  void learn_the_pace() {
    for (int step = 0; step < 20; ++step)
      for (int layer = 0; layer < 4; ++layer) {
        route(layer, {});
        now += 10 * kChunkTime;
      }
  }
};

TEST_F(PatienceTest, APrefetchEvictsWhenItsTimeHasCome) {
  for (const bool patience : {true, false}) {
    now = Nanos{0};
    make(2, {.guard = false, .patience = patience});
    learn_the_pace();
    EXPECT_EQ(carry_all(), 0);
    pass(0, {0, 1});
    const uint64_t early = tier->counters().early;
    foresee(0, {{2, 0, 0.9F}});
    EXPECT_EQ(carry_all(), patience ? 0 : 2) << "it can be brought after layer 1 too";
    EXPECT_EQ(tier->counters().early - early, patience ? 1u : 0u);
    EXPECT_EQ(tier->slot_of(key(0, 0)).has_value() && tier->slot_of(key(0, 1)).has_value(), patience);
    now += 10 * kChunkTime;
    route(1, {});
    foresee(1, {{2, 0, 0.9F}});
    EXPECT_EQ(carry_all(), patience ? 2 : 0) << "now is the time";
    EXPECT_TRUE(tier->slot_of(key(2, 0)));
  }
}

TEST_F(PatienceTest, WhereTheLinkHasMuchToBringNothingWaits) {
  make(6, {.budget = false, .guard = false});
  learn_the_pace();
  pass(0, {0, 1, 2, 3});
  pass(1, {0, 1});
  // Six experts of two chunks until layer 3: the link needs all the time until then.
  foresee(1, {{2, 0, 1}, {2, 1, 1}, {2, 2, 1}, {3, 0, 0.9F}, {3, 1, 0.9F}, {3, 2, 0.9F}});
  EXPECT_EQ(carry_all(), 2 * 6);
}

TEST_F(PatienceTest, AFreeSlotIsFilledAtOnce) {
  make(3);
  learn_the_pace();
  pass(0, {0, 1});
  foresee(0, {{3, 0, 0.9F}});
  EXPECT_EQ(carry_all(), 2);
}

}  // namespace
}  // namespace moestro::tier
