// How outlooks are merged, and how the drives' pace is measured.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/machine/drive_pace.h"
#include "store/machine/outlooks.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

class OutlooksTest : public ::testing::Test {
 protected:
  OutlooksTest() { outlooks_.resize(16); }
  void foresee(uint32_t slot, const std::vector<ForeseenEntry>& experts, bool scan = false, bool leads = false) {
    outlooks_.replace(slot, now_, {experts, scan, leads});
    outlooks_.merge(now_, [this](uint32_t entry) -> std::optional<uint32_t> {
      if (entry == gone_) return std::nullopt;
      return entry == alias_ ? first_ : entry;
    });
  }
  std::vector<uint32_t> order() {
    std::vector<uint32_t> entries;
    for (const Wish& wish : outlooks_.wishes()) entries.push_back(wish.entry);
    return entries;
  }
  Outlooks outlooks_;
  Nanos now_{0};
  uint32_t gone_ = UINT32_MAX, alias_ = UINT32_MAX, first_ = 0;
};

TEST_F(OutlooksTest, OrderIsProbabilityTimesProximity) {
  // 0.4 * 1, 0.9 * 0.5, 0.3 * 1, and the furthest.
  foresee(0, {{1, 0.4F, Nanos(0)}, {2, 0.9F, Nanos(50)}, {3, 0.3F, Nanos(0)}, {4, 1, Nanos(100)}});
  EXPECT_THAT(order(), ElementsAre(2, 1, 3, 4));
  foresee(0, {{7, 0.5F, Nanos(0)}, {6, 0.5F, Nanos(0)}});
  EXPECT_THAT(order(), ElementsAre(6, 7)) << "equal ones by their number";
  foresee(0, {{7, 0.5F, Nanos(9)}, {6, 0.4F, Nanos(9)}});
  EXPECT_THAT(order(), ElementsAre(7, 6)) << "one layer: by probability, although all are equally far";
}

TEST_F(OutlooksTest, NewOutlookReplacesTheOneBefore) {
  foresee(3, {{1, 1, Nanos(5)}});
  foresee(3, {{2, 1, Nanos(5)}});
  EXPECT_THAT(order(), ElementsAre(2));
  EXPECT_EQ(outlooks_.find(1), nullptr);
  foresee(3, {});
  EXPECT_THAT(order(), ElementsAre());
  EXPECT_FALSE(outlooks_.any());
}

TEST_F(OutlooksTest, WhatSeveralWorkersForeseeIsLikelierAndDueAtTheEarliest) {
  foresee(0, {{1, 0.5F, Nanos(80)}, {2, 0.6F, Nanos(80)}});
  now_ = Nanos(10);
  foresee(1, {{1, 0.5F, Nanos(30)}}, false, true);
  const Wish* wish = outlooks_.find(1);
  ASSERT_NE(wish, nullptr);
  EXPECT_THAT(wish->probability, FloatNear(0.75F, 1e-6F));
  EXPECT_EQ(wish->due, Nanos(40));
  EXPECT_TRUE(wish->leads);
  EXPECT_FALSE(outlooks_.find(2)->leads);
  outlooks_.remove(1);
  EXPECT_TRUE(outlooks_.stale(now_));
}

TEST_F(OutlooksTest, OneThatIsNotReplacedForLongIsDropped) {
  foresee(0, {{1, 1, Nanos(5)}});
  foresee(1, {{2, 1, Outlooks::kStandsAtLeast}});
  now_ = Outlooks::kStandsAtLeast;
  EXPECT_FALSE(outlooks_.stale(now_));
  now_ += Nanos(1);
  EXPECT_TRUE(outlooks_.stale(now_));
  foresee(5, {});
  EXPECT_THAT(order(), ElementsAre(2));
  now_ = 2 * Outlooks::kStandsAtLeast + Nanos(1);
  foresee(6, {{3, 1, Nanos(5)}});
  EXPECT_THAT(order(), ElementsAre(3));
}

TEST_F(OutlooksTest, AliasesCountForTheEntryThatHoldsTheirBytes) {
  alias_ = 5, first_ = 2, gone_ = 9;
  foresee(0, {{5, 0.5F, Nanos(1)}, {2, 0.5F, Nanos(1)}, {9, 1, Nanos(1)}});
  EXPECT_THAT(order(), ElementsAre(2));
  EXPECT_THAT(outlooks_.find(2)->probability, FloatNear(0.75F, 1e-6F));
}

TEST_F(OutlooksTest, ScansComeLastInTheirOrder) {
  foresee(0, {{9, 0.1F, Nanos(90)}, {3, 1, Nanos(10)}}, true);
  foresee(1, {{4, 0.3F, Nanos(10)}, {3, 0.2F, Nanos(10)}});
  EXPECT_THAT(order(), ElementsAre(3, 4, 9)) << "3 is no scan's alone";
  EXPECT_TRUE(outlooks_.find(9)->scan);
  EXPECT_FALSE(outlooks_.find(3)->scan);
}

TEST_F(OutlooksTest, NextUseIsFurtherForWhatIsLaterOrLessLikely) {
  foresee(0, {{1, 1, Nanos(10)}, {2, 1, Nanos(90)}, {3, 0.5F, Nanos(10)}, {4, 0.01F, Nanos(100)}});
  EXPECT_LT(outlooks_.find(1)->until, outlooks_.find(2)->until);
  EXPECT_LT(outlooks_.find(2)->until, outlooks_.find(3)->until) << "half of the time it takes another pass";
  EXPECT_LT(outlooks_.find(3)->until, outlooks_.find(4)->until);
  EXPECT_THAT(outlooks_.by_due().size(), 4u);
  EXPECT_EQ(outlooks_.wishes()[outlooks_.by_due()[3]].entry, 4u);
}

TEST(DrivePaceTest, RateIsThatOfTheTimeInWhichSomethingWasRead) {
  DrivePace pace;
  EXPECT_TRUE(pace.in_time(1e12, Nanos(0))) << "unknown: no limit";
  EXPECT_FALSE(pace.may_wait(1, Nanos(1'000'000)));
  pace.at(Nanos(1000), false, false);
  pace.at(Nanos(2000), true, true);
  pace.carried(4000);
  EXPECT_NEAR(pace.bytes_per_s(), 4e9, 1);
  pace.at(Nanos(5000), false, false);
  pace.at(Nanos(6000), true, true);
  pace.carried(0);  // cancelled, while another one was read
  pace.at(Nanos(7000), true, true);
  pace.carried(8000);
  EXPECT_NEAR(pace.bytes_per_s(), 4e9, 1);
}

TEST(DrivePaceTest, BudgetAndPatience) {
  DrivePace pace;
  pace.at(Nanos(1000), true, true);
  pace.carried(1000);  // a byte a nanosecond
  EXPECT_TRUE(pace.in_time(500, Nanos(1500)));
  EXPECT_FALSE(pace.in_time(510, Nanos(1500)));
  const auto until = pace.may_wait(200, Nanos(1500));
  ASSERT_TRUE(until);
  EXPECT_NEAR(static_cast<double>(until->count()), 1200, 2) << "one and a half times as early as is needed";
  pace.at(*until, false, false);
  EXPECT_FALSE(pace.may_wait(200, Nanos(1500)));
}

TEST(DrivePaceTest, WhatADemandMayWaitForIsWorthItFromAProbabilityOn) {
  DrivePace pace;
  EXPECT_EQ(pace.break_even(1e6), 0) << "unknown";
  pace.at(Nanos(1000), true, true);
  pace.carried(1000);  // a byte a nanosecond
  EXPECT_EQ(pace.break_even(1e6), 0) << "no pause has ended yet";
  pace.at(Nanos(1400), false, false);
  pace.at(Nanos(1500), true, false);  // what is read ahead is no demand
  pace.at(Nanos(2000), true, true);
  EXPECT_NEAR(pace.break_even(1000), 1000.0 / (500 + 1000), 1e-9);
  EXPECT_NEAR(pace.break_even(100), 100.0 / (500 + 100), 1e-9);
  pace.at(Nanos(2000) + std::chrono::minutes(1), false, false);
  pace.at(Nanos(3000) + std::chrono::minutes(1), true, true);
  EXPECT_NEAR(pace.break_even(1000), 1000.0 / (500 + 1000), 1e-9) << "nobody asked for anything: not a pause of a step";
}

}  // namespace
}  // namespace moestro::store
