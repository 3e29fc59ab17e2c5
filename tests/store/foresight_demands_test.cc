// What becomes of reads ahead: workers demand them, or need their room, or do not foresee them any more; they are used,
// or were for nothing.

#include <gmock/gmock.h>

#include "tests/store/foresight_fixture.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using ForesightDemands = ForesightTest;

TEST_F(ForesightDemands, NothingIsReadAheadWhileADemandWaits) {
  make(8);
  const Actions begun = foresee({{4, 1, Nanos(50)}, {5, 1, Nanos(50)}, {6, 1, Nanos(50)}});
  ASSERT_THAT(of(begun, Kind::kRead), ElementsAre(4, 5));
  const Actions demanded = machine_->fetch(0, {1, 0}, {1, 2, 3});
  EXPECT_THAT(of(demanded, Kind::kRead), ElementsAre(1, 2)) << "two of their own, next to the reads ahead";
  EXPECT_EQ(machine_->queued(ReadClass::kDemand), 1u);
  EXPECT_EQ(machine_->queued(ReadClass::kPrefetch), 1u) << "6 waits only for the drive";
  EXPECT_THAT(of(done(begun[0]), Kind::kRead), IsEmpty());
  EXPECT_THAT(of(done(begun[1]), Kind::kRead), IsEmpty());
  EXPECT_THAT(of(done(demanded[0]), Kind::kRead), ElementsAre(3)) << "and 6 only with room for what is read at once";
  EXPECT_THAT(of(done(demanded[1]), Kind::kRead), ElementsAre(6));
}

TEST_F(ForesightDemands, WhatIsForeseenAndNotBegunIsReadAsADemandOnce) {
  make(8);
  foresee({{1, 1, Nanos(50)}, {2, 1, Nanos(50)}, {4, 1, Nanos(90)}});
  const Actions demanded = machine_->fetch(0, {1, 0}, {4});
  ASSERT_THAT(of(demanded, Kind::kRead), ElementsAre(4));
  EXPECT_EQ(demanded[0].read_class, ReadClass::kDemand);
  EXPECT_THAT(of(done(demanded[0]), Kind::kNotify), ElementsAre(4));
  EXPECT_EQ(machine_->counters().prefetches, 2u);
}

TEST_F(ForesightDemands, ADemandTakesOverWhatIsBeingReadAhead) {
  make(8);
  const Actions begun = foresee({{1, 1, Nanos(50)}});
  const Actions demanded = machine_->fetch(0, {1, 0}, {1});
  ASSERT_THAT(of(demanded, Kind::kPromote), ElementsAre(1));
  EXPECT_EQ(demanded[0].load, begun[0].load);
  EXPECT_EQ(machine_->inconsistency(), "") << "it is no read ahead any more";
  EXPECT_THAT(of(machine_->fetch(0, {1, 0}, {1}), Kind::kPromote), IsEmpty()) << "once";
  EXPECT_THAT(of(foresee({}), Kind::kCancel), IsEmpty()) << "it is read to its end";
  EXPECT_THAT(of(done(begun[0]), Kind::kNotify), ElementsAre(1));
  EXPECT_EQ(machine_->counters().prefetches_late, 1u);
  EXPECT_EQ(machine_->counters().joined, 1u);
  EXPECT_EQ(machine_->prefetch_counters().unused, 0u) << "it was late, not used after it had arrived";
}

TEST_F(ForesightDemands, AWorkerThatCancelsKeepsItsOutlook) {
  make(8);
  foresee({{1, 1, Nanos(50)}});
  machine_->fetch(0, {1, 0}, {5, 6, 7});
  EXPECT_THAT(of(machine_->cancel(0), Kind::kCancel), IsEmpty());
  EXPECT_EQ(machine_->queued(), 0u);
  EXPECT_THAT(of(foresee({}), Kind::kCancel), ElementsAre(1));
}

TEST_F(ForesightDemands, ADemandWithoutRoomGetsThatOfReadsAhead) {
  make(2);
  fill({1});
  const Actions begun = foresee({{2, 1, Nanos(50)}});
  ASSERT_THAT(of(begun, Kind::kRead), ElementsAre(2));
  shared_.pins[1] = {1};
  EXPECT_THAT(of(machine_->fetch(0, {1, 0}, {3}), Kind::kCancel), ElementsAre(2));
  EXPECT_TRUE(machine_->blocked());
  EXPECT_EQ(machine_->counters().prefetches_dropped, 1u);
  EXPECT_THAT(of(done(begun[0], cancelled("")), Kind::kRead), ElementsAre(3));
}

TEST_F(ForesightDemands, WithoutRoomNothingIsReadAheadAndNobodyIsHeldUp) {
  make(3);
  fill({1, 2, 3});
  shared_.pins[0] = {1, 2, 3};
  EXPECT_THAT(foresee({{4, 1, Nanos(50)}, {5, 1, Nanos(50)}}), IsEmpty());
  EXPECT_FALSE(machine_->blocked());
  EXPECT_EQ(machine_->counters().guarded, 2u);
  EXPECT_EQ(machine_->counters().prefetches_dropped, 0u) << "nothing was begun";
  EXPECT_EQ(machine_->queued(ReadClass::kPrefetch), 0u) << "they wait for room, not for the drive";
  shared_.pins[0] = {1, 2};
  EXPECT_THAT(of(machine_->fetch(0, {1, 0}, {6}), Kind::kRead), ElementsAre(6));
}

TEST_F(ForesightDemands, WhatIsNoLongerForeseenIsGivenUp) {
  make(8);
  const Actions begun = foresee({{1, 1, Nanos(50)}, {2, 1, Nanos(50)}});
  EXPECT_THAT(of(foresee({{1, 0.13F, Nanos(50)}, {2, 0.12F, Nanos(50)}}), Kind::kCancel), ElementsAre(2))
      << "less than half of the floor";
  EXPECT_THAT(of(foresee({}), Kind::kCancel), ElementsAre(1));
  EXPECT_THAT(machine_->poll(), IsEmpty()) << "each once";
  EXPECT_EQ(machine_->counters().prefetches_dropped, 2u);
  done(begun[0], cancelled(""));
  EXPECT_EQ(shared_.state(1), Residency::kAbsent);
  done(begun[1]);
  EXPECT_TRUE(there(2)) << "whole before it could be given up";
  EXPECT_EQ(machine_->counters().bad_blobs, 0u);
}

TEST_F(ForesightDemands, ADemandOfWhatIsBeingGivenUpIsReadAgain) {
  make(8);
  const Actions begun = foresee({{1, 1, Nanos(50)}});
  ASSERT_THAT(of(foresee({}), Kind::kCancel), ElementsAre(1));
  EXPECT_THAT(of(machine_->fetch(0, {1, 0}, {1}), Kind::kRead), IsEmpty());
  const Actions again = done(begun[0], cancelled(""), 1024);
  ASSERT_THAT(of(again, Kind::kRead), ElementsAre(1));
  EXPECT_EQ(machine_->prefetch_counters().wasted_bytes, 1024u);
  EXPECT_THAT(of(done(again.back()), Kind::kNotify), ElementsAre(1));
}

TEST_F(ForesightDemands, OutlooksEndWithTheirWorkers) {
  make(8);
  foresee({{1, 1, Nanos(50)}, {2, 1, Nanos(50)}});
  foresee({{2, 1, Nanos(50)}}, false, false, 1);
  EXPECT_THAT(of(machine_->gone(0), Kind::kCancel), ElementsAre(1)) << "worker 1 still foresees 2";
  EXPECT_THAT(of(machine_->gone(1), Kind::kCancel), ElementsAre(2));
}

TEST_F(ForesightDemands, WhatCannotBeReadIsTriedOnce) {
  make(4);
  const Actions begun = foresee({{1, 1, Nanos(50)}});
  const Actions failed = done(begun[0], io_error("the drive"));
  EXPECT_THAT(of(failed, Kind::kRead), IsEmpty());
  EXPECT_EQ(shared_.state(1), Residency::kBad);
  EXPECT_THAT(of(foresee({{1, 1, Nanos(50)}}), Kind::kRead), IsEmpty());
}

TEST_F(ForesightDemands, UsedAndWastedAreCounted) {
  make(2);
  finish(foresee({{1, 1, Nanos(50)}, {2, 1, Nanos(50)}}));
  EXPECT_EQ(machine_->prefetch_counters().unused, 2u);
  shared_.use(0, 2);
  EXPECT_EQ(machine_->prefetch_counters().used, 1u);
  foresee({});
  finish(machine_->fetch(0, {1, 0}, {3}));
  EXPECT_FALSE(there(1)) << "nobody has used it";
  EXPECT_EQ(machine_->prefetch_counters().wasted, 1u);
  EXPECT_EQ(machine_->prefetch_counters().wasted_bytes, kExpert);
  EXPECT_EQ(machine_->prefetch_counters().unused, 0u);
}

TEST_F(ForesightDemands, BytesOfCancelledReadsAreWasted) {
  make(8);
  const Actions begun = foresee({{1, 1, Nanos(50)}, {2, 1, Nanos(50)}});
  foresee({});
  done(begun[0], cancelled(""), 3000);
  done(begun[1], cancelled(""), 0);
  EXPECT_EQ(machine_->prefetch_counters().wasted_bytes, 3000u);
  EXPECT_EQ(machine_->prefetch_counters().wasted, 0u) << "neither was ever there";
  EXPECT_EQ(machine_->counters().prefetches_dropped, 2u);
}

/// Nothing is ever evicted unused: the floor rises for what was cancelled.
TEST_F(ForesightDemands, TheFloorRisesWhileTooMuchIsCancelled) {
  for (const bool carries : {false, true}) {
    make(8, 0.01F);
    for (uint32_t i = 0; i < 400; ++i) {
      const Actions begun = foresee({{1 + i % kExperts, 0.99F, Nanos(10)}});
      foresee({});
      for (const Action& read : begun) done(read, cancelled(""), carries ? kExpert / 2 : 0);
    }
    if (carries) EXPECT_GT(machine_->ahead_floor(), 0.5F);
    else EXPECT_EQ(machine_->ahead_floor(), 0.25F);
  }
}

/// The time for which a read kept the drive busy says as much of its speed if the read was cancelled.
TEST_F(ForesightDemands, CancelledReadsCountForTheSpeedOfTheDrive) {
  make(8);
  const Actions begun = foresee({{1, 1, Nanos(50)}});
  foresee({});
  advance(kRead);
  done(begun[0], cancelled(""), kExpert);
  EXPECT_THAT(of(foresee({{2, 1, kRead * 9 / 10}}), Kind::kRead), IsEmpty());
  EXPECT_THAT(of(foresee({{2, 1, kRead}}), Kind::kRead), ElementsAre(2));
}

}  // namespace
}  // namespace moestro::store
