// A prefetch evicts only if its layer would otherwise wait.

#include "tests/tier/tier_fixture.h"

namespace moestro::tier {
namespace {

/// A copy takes two chunks' time, computing an expert four: one present expert hides a copy.
class ThriftTest : public TierFixture {
 protected:
  void make_thrifty(bool thrift) {
    now = Nanos{0};
    make(4, {.guard = false, .patience = false, .thrift = thrift});
  }
  void compute(int32_t layer, std::initializer_list<int32_t> experts) {
    route(layer, experts);
    while (carry()) {}
    for (const int32_t e : experts) {
      now += 4 * kChunkTime;
      tier->released(now, key(layer, e));
    }
  }
};

TEST_F(ThriftTest, NothingIsEvictedForALayerThatHasEnoughToComputeMeanwhile) {
  for (const bool thrift : {true, false}) {
    make_thrifty(thrift);
    compute(2, {0, 1});
    compute(3, {0, 1});
    compute(0, {});
    foresee(0, {{2, 0, 0.95F}, {2, 1, 0.95F}, {2, 2, 0.9F}});
    EXPECT_EQ(carry_all(), thrift ? 0 : 2);
    EXPECT_EQ(tier->counters().needless, thrift ? 1u : 0u);
  }
}

TEST_F(ThriftTest, ALayerThatHasNothingToComputeWaitsSoItsExpertIsPrefetched) {
  make_thrifty(true);
  compute(2, {0, 1});
  compute(3, {0, 1});
  compute(0, {});
  foresee(0, {{1, 2, 0.9F}});
  EXPECT_EQ(carry_all(), 2);
  EXPECT_TRUE(tier->slot_of(key(1, 2)));
  EXPECT_EQ(tier->counters().needless, 0u);
}

TEST_F(ThriftTest, OneExpertIsEnoughToComputeWhileTheOthersCome) {
  make_thrifty(true);
  compute(2, {0, 1});
  compute(3, {0, 1});
  compute(0, {});
  foresee(0, {{1, 0, 0.95F}, {1, 1, 0.9F}, {1, 2, 0.85F}});
  EXPECT_EQ(carry_all(), 2) << "with one of them there is something to compute";
  EXPECT_TRUE(tier->slot_of(key(1, 0)));
  EXPECT_EQ(tier->counters().needless, 2u);
}

TEST_F(ThriftTest, UntilAnExpertHasBeenTimedPrefetchesGoOn) {
  make_thrifty(true);
  pass(2, {0, 1});  // computed in no time
  pass(3, {0, 1});
  route(0, {});
  foresee(0, {{2, 0, 0.95F}, {2, 1, 0.95F}, {2, 2, 0.9F}});
  EXPECT_EQ(carry_all(), 2);
}

TEST_F(ThriftTest, AFreeSlotIsFilledAnyway) {
  make_thrifty(true);
  compute(2, {0, 1});
  compute(0, {});
  foresee(0, {{2, 0, 0.95F}, {2, 1, 0.95F}, {2, 2, 0.9F}});
  EXPECT_EQ(carry_all(), 2);
}

}  // namespace
}  // namespace moestro::tier
