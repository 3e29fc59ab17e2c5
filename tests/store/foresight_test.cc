// What the machine reads ahead because workers foresee it, rule by rule.

#include "tests/store/foresight_fixture.h"

#include <gmock/gmock.h>

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(ForesightTest, WhatIsLikelyAndNearIsReadFirstIntoFreeRoomAndTellsNobody) {
  make(8);
  const Actions begun = foresee({{5, 0.4F, Nanos(10)}, {6, 0.9F, Nanos(10)}, {7, 0.9F, Nanos(60)}, {8, 1, Nanos(99)}});
  EXPECT_THAT(of(begun, Kind::kRead), ElementsAre(6, 5)) << "two at once";
  EXPECT_EQ(begun[0].read_class, ReadClass::kPrefetch);
  const Actions more = done(begun[0]);
  EXPECT_THAT(of(more, Kind::kNotify), IsEmpty());
  EXPECT_THAT(of(more, Kind::kRead), ElementsAre(7));
  EXPECT_THAT(finish(more), ElementsAre(7, 8));
  done(begun[1]);
  EXPECT_EQ(machine_->counters().prefetches, 4u);
  EXPECT_EQ(machine_->counters().fetches, 0u);
  EXPECT_FALSE(shared_.pinned(6));
  EXPECT_THAT(foresee({{6, 0.9F, Nanos(10)}}), IsEmpty()) << "it is there";
}

TEST_F(ForesightTest, NothingBelowTheFloorIsRead) {
  make(8);
  EXPECT_THAT(of(foresee({{1, 0.24F, Nanos(10)}, {2, 0.26F, Nanos(10)}}), Kind::kRead), ElementsAre(2));
  machine_->poll();
  EXPECT_EQ(machine_->counters().below_floor, 1u) << "once an outlook";
}

TEST_F(ForesightTest, FloorRisesWhileTooMuchIsWasted) {
  for (const float waste_max : {0.01F, 1.0F}) {
    make(2, waste_max);
    for (uint32_t i = 0; i < 400; ++i) {
      const uint32_t entry = 1 + i % kExperts;
      finish(foresee({{entry, 0.9F, Nanos(10)}}));
      finish(foresee({}));
    }
    EXPECT_GT(machine_->prefetch_counters().wasted, 100u);
    if (waste_max < 1) EXPECT_GT(machine_->ahead_floor(), 0.5F);
    else EXPECT_EQ(machine_->ahead_floor(), 0.25F);
  }
}

TEST_F(ForesightTest, OnlyWhatTheDriveCanBringInTimeIsRead) {
  make(8);
  taught(1);
  EXPECT_THAT(of(foresee({{2, 1, kRead * 9 / 10}}), Kind::kRead), IsEmpty());
  EXPECT_EQ(machine_->counters().over_budget, 1u);
  const Actions begun = foresee({{2, 1, kRead}, {3, 1, kRead * 19 / 10}, {4, 1, 2 * kRead}});
  EXPECT_THAT(of(begun, Kind::kRead), ElementsAre(2, 4)) << "3 would be late behind 2";
  machine_->fetch(1, {1, 0}, {9});
  for (const Action& read : begun) done(read);
  EXPECT_THAT(of(foresee({{5, 1, kRead * 19 / 10}}), Kind::kRead), IsEmpty()) << "and behind a demand";
  EXPECT_THAT(of(foresee({{5, 1, 2 * kRead}}), Kind::kRead), ElementsAre(5));
}

/// What is begun takes its room at once.
TEST_F(ForesightTest, AheadOnlySoManyAreBegunAsKeepTheDriveBusy) {
  make(20, 0, 8);
  std::vector<ForeseenEntry> likely;
  for (uint32_t i = 1; i <= 8; ++i) likely.push_back({i, 1, i * kRead});
  const Actions begun = foresee(likely);
  EXPECT_THAT(of(begun, Kind::kRead), ElementsAre(1, 2));
  EXPECT_THAT(of(done(begun[0]), Kind::kRead), ElementsAre(3)) << "one that is read, and the next";
  EXPECT_EQ(of(machine_->fetch(0, {1, 0}, {11, 12, 13, 14}), Kind::kRead).size(), 4u) << "demands are not held back";
}

TEST_F(ForesightTest, ReadThatEvictsWaitsForItsTime) {
  make(3);
  taught(1);
  fill({2});
  const Actions free = foresee({{3, 1, 90 * kRead}, {4, 1, 10 * kRead}});
  EXPECT_THAT(of(free, Kind::kRead), ElementsAre(4)) << "free room is used at once, and there is only one";
  EXPECT_EQ(machine_->counters().early, 1u);
  advance(kRead);
  finish(free);
  ASSERT_TRUE(machine_->look_again());
  EXPECT_NEAR(static_cast<double>((*machine_->look_again() - now_).count()), 8900 - 150, 2);
  EXPECT_THAT(of(machine_->poll(), Kind::kRead), IsEmpty());
  advance(*machine_->look_again() - now_);
  EXPECT_THAT(of(machine_->poll(), Kind::kRead), ElementsAre(3));
  EXPECT_FALSE(there(1)) << "the least recently used one";
  EXPECT_FALSE(machine_->look_again());
}

TEST_F(ForesightTest, PatienceCountsAllThatIsDueUntilThen) {
  make(2);
  taught(1);
  fill({2});
  foresee({{3, 1, 10 * kRead}, {4, 1, 10 * kRead}, {5, 1, 10 * kRead}, {6, 1, 20 * kRead}});
  ASSERT_TRUE(machine_->look_again());
  EXPECT_NEAR(static_cast<double>((*machine_->look_again() - now_).count()), 1000 - 450, 2);
}

TEST_F(ForesightTest, TakesNothingThatIsUsedSoonerThanItself) {
  make(2);
  fill({1, 2});
  EXPECT_THAT(of(foresee({{1, 1, Nanos(10)}, {2, 1, Nanos(20)}, {3, 1, Nanos(30)}}, false, true), Kind::kRead),
              IsEmpty());
  EXPECT_EQ(machine_->counters().guarded, 1u);
  EXPECT_THAT(of(foresee({{1, 1, Nanos(10)}, {2, 0.4F, Nanos(10)}, {3, 0.9F, Nanos(10)}}, false, true), Kind::kRead),
              ElementsAre(3));
  EXPECT_FALSE(there(2)) << "less likely is later";
}

TEST_F(ForesightTest, NorDoesItWithoutALeadWhereThePolicyWouldTakeIt) {
  make(2);
  fill({1, 2});
  EXPECT_THAT(of(foresee({{1, 1, Nanos(10)}, {3, 1, Nanos(30)}}), Kind::kRead), ElementsAre(3));
  EXPECT_TRUE(there(1)) << "the oldest by the policy";
  EXPECT_FALSE(there(2));
}

TEST_F(ForesightTest, ALeadingForecastSaysWhatGoesForADemand) {
  make(3);
  fill({1, 2, 3});
  foresee({{1, 1, Nanos(10)}, {2, 1, Nanos(90)}}, false, true);
  finish(machine_->fetch(0, {1, 0}, {4}));
  EXPECT_FALSE(there(3)) << "it is the only one that is not foreseen";
  foresee({{1, 1, Nanos(10)}, {2, 1, Nanos(90)}, {4, 1, Nanos(50)}}, false, true);
  shared_.pins[0] = {5};
  finish(machine_->fetch(0, {1, 0}, {5}));
  EXPECT_FALSE(there(2)) << "foreseen latest";
}

TEST_F(ForesightTest, WithoutALeadThePolicySaysWhatGoes) {
  make(3);
  fill({1, 2, 3});
  foresee({{1, 0.2F, Nanos(10)}, {2, 0.2F, Nanos(90)}});
  finish(machine_->fetch(0, {1, 0}, {4}));
  EXPECT_FALSE(there(1));
}

TEST_F(ForesightTest, WhatWasReadAheadAndIsStillToBeUsedGoesLast) {
  make(2);
  finish(foresee({{1, 1, Nanos(50)}, {2, 0.5F, Nanos(50)}}));
  EXPECT_THAT(of(foresee({{1, 1, Nanos(50)}, {2, 0.5F, Nanos(50)}, {3, 1, Nanos(1)}}), Kind::kRead), IsEmpty())
      << "for no other read ahead, however near";
  shared_.pins[0] = {4};
  finish(machine_->fetch(0, {1, 0}, {4}));
  EXPECT_FALSE(there(2)) << "for a demand that finds nothing else, the least likely";
  shared_.use(0, 4);
  shared_.pins[0].clear();
  machine_->look_at_all();
  shared_.pins[0] = {5};
  finish(machine_->fetch(0, {1, 0}, {5}));
  EXPECT_FALSE(there(4)) << "for a demand that finds something else, none";
  EXPECT_TRUE(there(1));
}

TEST_F(ForesightTest, ProtectionEndsWithItsLayer) {
  make(2);
  finish(foresee({{1, 1, Nanos(50)}, {2, 1, Nanos(99)}}));
  advance(Nanos(60));
  finish(foresee({{1, 1, Nanos(95)}, {2, 1, Nanos(40)}, {3, 1, Nanos(30)}, {9, 0.1F, Nanos(99)}}));
  EXPECT_FALSE(there(1)) << "it is foreseen for the next pass, and has not been used in this one";
  EXPECT_TRUE(there(3));
  finish(foresee({{3, 1, Nanos(30)}, {4, 1, Nanos(10)}}));
  EXPECT_FALSE(there(2)) << "it is not foreseen any more";
}

TEST_F(ForesightTest, AScanIsReadInItsOrderWhateverItsProbability) {
  make(8);
  taught(1);
  EXPECT_THAT(finish(foresee({{9, 0.1F, Nanos(90)}, {3, 1, Nanos(10)}, {5, 0, Nanos(1)}}, true)),
              ElementsAre(9, 3, 5));
}

TEST_F(ForesightTest, AScanHoldsAQuarterOfTheRoomAndItsPastGoesFirst) {
  make(12, 0, 20);
  fill({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  std::vector<ForeseenEntry> scan;
  for (uint32_t entry = 20; entry < 30; ++entry) scan.push_back({entry, 1, Nanos(10)});
  EXPECT_THAT(finish(foresee(scan, true)), ElementsAre(20, 21, 22));
  shared_.scan(20, 1);  // its layer has passed; no whole token has used it
  shared_.use(0, 21);
  scan.erase(scan.begin(), scan.begin() + 2);
  EXPECT_THAT(finish(foresee(scan, true)), ElementsAre(23, 24)) << "one in the place of 20, one for 21 that is hot now";
  EXPECT_FALSE(there(20));
  EXPECT_TRUE(there(21));
  foresee({});
  for (const uint32_t entry : {30U, 31U, 32U}) finish(machine_->fetch(0, {1, 0}, {entry}));
  for (const uint32_t entry : {22U, 23U, 24U}) EXPECT_FALSE(there(entry)) << entry << ", before what is older";
}

TEST_F(ForesightTest, PastOfAScanGoesFirstEvenIfThePolicyHasItForHot) {
  make(4, 0, 2, "lfru");
  fill({20, 1, 2, 3});
  for (int i = 0; i < 20; ++i) shared_.use(0, 20), machine_->look_at_all();
  shared_.pins[1] = {1, 2, 3};
  finish(machine_->fetch(0, {1, 0}, {4}));
  shared_.pins.clear();
  machine_->look_around();  // the policy proposes again what was pinned
  ASSERT_FALSE(there(20));
  EXPECT_THAT(finish(foresee({{20, 1, Nanos(10)}}, true)), ElementsAre(20));
  foresee({});
  finish(machine_->fetch(0, {1, 0}, {5}));
  EXPECT_FALSE(there(20));
}

TEST_F(ForesightTest, WhatWasForeseenInVainGoesFirst) {
  make(2);
  fill({5});
  finish(foresee({{1, 1, Nanos(10)}}));
  foresee({});
  finish(machine_->fetch(0, {1, 0}, {6}));
  EXPECT_FALSE(there(1));
  EXPECT_TRUE(there(5)) << "although it is older";
}

TEST_F(ForesightTest, PacksThatAreRemovedTakeTheirWishesAlong) {
  make(4);
  const Actions begun = foresee({{1, 1, Nanos(50)}, {2, 1, Nanos(50)}, {3, 1, Nanos(50)}});
  machine_->remove_entries(1, kExperts);
  for (const Action& read : begun) EXPECT_THAT(of(done(read), Kind::kRead), IsEmpty());
  machine_->gone(0);
  machine_->poll();
  EXPECT_TRUE(machine_->entries_free(1, kExperts));
  ASSERT_TRUE(machine_->add_entries(1, {{false, kExpert}}));
  EXPECT_THAT(of(machine_->poll(), Kind::kRead), IsEmpty());
}

TEST_F(ForesightTest, ModelsKeepWhatTheyAreGuaranteed) {
  make(4);
  machine_->set_owners(1, 20, 1);
  machine_->set_owners(21, 20, 2);
  machine_->set_model_share(0, {2 * kExpert, UINT64_MAX});
  machine_->set_model_share(1, {0, 3 * kExpert});
  fill({1, 2});
  EXPECT_THAT(finish(foresee({{21, 1, Nanos(9)}, {22, 1, Nanos(9)}, {23, 1, Nanos(9)}}, false, true, 1)),
              ElementsAre(21, 22))
      << "free room alone: what model 0 has is guaranteed";
  EXPECT_TRUE(there(1));
  EXPECT_TRUE(there(2));
}

TEST_F(ForesightTest, BlobsWithEqualBytesAreOneWish) {
  std::vector<MachineBlob> blobs{{true, 8192}};
  for (uint32_t i = 0; i < kExperts; ++i) blobs.push_back({false, kExpert, 2, {1 + i % 4, 1}});
  shared_.resize(blobs.size());
  auto made = StoreMachine::create({.arena_bytes = 8192 + 8 * kExpert, .loading_bytes_max = 2 * kExpert}, blobs,
                                   *policy::make_policy("lru", blobs.size()), shared_);
  ASSERT_TRUE(made);
  machine_ = std::move(*made);
  ASSERT_TRUE(machine_->attach(0, kExpert, "a"));
  const Actions begun = foresee({{1, 1, Nanos(50)}});
  machine_->read_done(1, begun[0].load, Status::ok(), {1, 7});
  EXPECT_THAT(of(foresee({{1, 1, Nanos(50)}, {5, 1, Nanos(50)}}), Kind::kRead), IsEmpty()) << "its bytes are there";
  EXPECT_EQ(shared_.state(5), Residency::kAlias);
}

}  // namespace
}  // namespace moestro::store
