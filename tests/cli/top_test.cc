// The figures of `moestro top`: what happened between two looks, and the page of 80 columns. The whole page as it is
// drawn is in top_frames_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/top_figures.h"

namespace moestro::cli {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TopRates, AreWhatHappenedBetweenTwoLooks) {
  const StoreRates r = rates_between(busy(), two_seconds_later());
  EXPECT_DOUBLE_EQ(r.seconds, 2);
  EXPECT_DOUBLE_EQ(r.hits, 90);
  EXPECT_DOUBLE_EQ(r.misses, 10);
  EXPECT_DOUBLE_EQ(r.loads, 5);
  EXPECT_DOUBLE_EQ(r.evictions, 2);
  EXPECT_DOUBLE_EQ(r.read_bytes, 200.0 * kMiB);
  ASSERT_EQ(r.workers.size(), 2u);
  EXPECT_DOUBLE_EQ(r.workers[0].hits, 90);
  EXPECT_DOUBLE_EQ(r.workers[1].hits, 0);
  EXPECT_DOUBLE_EQ(r.drive_bytes.at(0), 200.0 * kMiB);
}

TEST(TopRates, OfAnotherStoreOrAnotherWorkerInTheSlotAreNone) {
  StoreLook now = two_seconds_later();
  now.status.epoch = 8;
  EXPECT_EQ(rates_between(busy(), now).hits, 0);
  now = two_seconds_later();
  now.status.workers[0].client = "another";
  EXPECT_EQ(rates_between(busy(), now).workers[0].hits, 0);
  now = two_seconds_later();
  now.status.reading.hits = 0;  // counted anew
  EXPECT_EQ(rates_between(busy(), now).hits, 0);
  EXPECT_EQ(rates_between(busy(), busy()).seconds, 0);
}

TEST(TopRates, AModelsTrafficIsThatOfItsWorkers) {
  EXPECT_EQ(traffic_of(busy().status, "mixtral").hits, 990u);
  EXPECT_EQ(traffic_of(busy().status, "mixtral").misses, 210u);
  EXPECT_EQ(traffic_of(busy().status, "qwen").hits, 0u);
  EXPECT_LT(hit_share(0, 0), 0);
  EXPECT_DOUBLE_EQ(hit_share(3, 1), 0.75);
}

TEST(TopPage, SaysAllOfItIn80Columns) {
  const StoreLook now = two_seconds_later();
  const auto page = page_of(busy(), now, {.columns = 80});
  EXPECT_THAT(page, Contains(AllOf(HasSubstr("1000 MiB ["), HasSubstr("##############-------......."),
                                   HasSubstr("75 % used, 500 MiB resident"))));
  EXPECT_THAT(page, Contains(HasSubstr("policy lfru, io_uring, 100 % of it huge pages")));
  EXPECT_THAT(page, Contains(HasSubstr("90 % of 100/s were there; 10.0 misses/s; since start 84 %")));
  EXPECT_THAT(page, Contains(HasSubstr("200 MiB/s; 5.00 loads/s, 2.00 evictions/s; 3 retries, 1 bad")));
  EXPECT_THAT(page, Contains(HasSubstr("demand 3 (1 being read), prefetch 2 (0), scrub 0 (1)")));
  EXPECT_THAT(page, Contains(AllOf(HasSubstr("mixtral "), HasSubstr("97 of 128"), HasSubstr("700 MiB"),
                                   HasSubstr("400 MiB"), HasSubstr("900 MiB"), HasSubstr("84 %"))));
  EXPECT_THAT(page, Contains(AllOf(HasSubstr("qwen (going)"), HasSubstr("0 of 64"))));
  EXPECT_THAT(page, Contains(AllOf(HasSubstr("worker-0"), HasSubstr("90.0"), HasSubstr("80.0 MiB"))));
  EXPECT_THAT(page, Contains(AllOf(HasSubstr("/packs"), HasSubstr("200 MiB/s"), HasSubstr("1.95 GiB/s"))));
  EXPECT_THAT(page, Contains(HasSubstr("12 prefetches: 9 used, 2 late, 1 wasted, 0 dropped;")));
  EXPECT_THAT(page, Contains(HasSubstr("21.0 MiB read for nothing")));
  EXPECT_THAT(page, Contains(HasSubstr("100 MiB compared again, 1 changed")));
  EXPECT_THAT(page, Contains(HasSubstr("128 blobs (300 MiB) in 0.2 s; 12 to check, 0 damaged")));
  EXPECT_THAT(page, Contains(HasSubstr("5 messages")));
}

TEST(TopPage, WhatIsOverIsRedForADayAndWhatIsRepairedNotAtAll) {
  const auto red = [](double memory_changed_s, uint64_t unreadable) {
    StoreLook look = busy();
    look.status.memory_changed_s = memory_changed_s, look.status.unreadable = unreadable, look.status.damaged = 2;
    std::string marked;
    for (const Line& line : top_page({}, {}, look, rates_between(look, look), {}))
      for (const std::string word : {"bad", "changed", "damaged"})
        if (line.drawn(true).find(word + "\x1b[0m") != std::string::npos) marked += word + " ";
    return marked;
  };
  EXPECT_EQ(red(3600, 1), "bad changed damaged ");
  EXPECT_EQ(red(25 * 3600, 1), "bad ");
  EXPECT_EQ(red(-1, 0), "");
}

TEST(TopPage, MessagesThatWereRefusedAreAWarningForADay) {
  const auto warns = [](double refused_s) {
    StoreLook look = busy();
    look.status.refused = 5, look.status.refused_s = refused_s;
    const auto page = top_page({}, {}, look, rates_between(look, look), {});
    const auto line = std::ranges::find_if(page, [](const Line& l) { return l.text().starts_with("refused"); });
    return line != page.end() && line->drawn(true).starts_with("\x1b[33m");
  };
  EXPECT_TRUE(warns(60));
  EXPECT_FALSE(warns(25 * 3600));
}

TEST(TopPage, SaysWhichDenseWeightsTakeTurns) {
  StoreLook before = busy();
  EXPECT_THAT(page_of(before, before, {.columns = 80}), Not(Contains(HasSubstr("take turns"))));
  before.status.window_places = 2;
  before.status.models[0].layers = 32, before.status.models[0].streamed_layers = 20;
  StoreLook now = before;
  now.at_s += 2;
  now.status.streamed_loaded_bytes += 300 * kMiB;
  EXPECT_THAT(page_of(before, now, {.columns = 80}),
              Contains(HasSubstr("20 of 32 layers take turns in 2 places: 150 MiB/s")));
}

TEST(TopPage, SaysWhyForeseenExpertsWereNotReadAhead) {
  StoreLook look = busy();
  look.status.reading.foreseen_below_floor = 31, look.status.reading.foreseen_early = 33;
  const auto page = page_of(busy(), look, {.columns = 80});
  EXPECT_THAT(page, Contains(HasSubstr("not read ahead: 31 unlikely, 0 too late for the drive, 33 early")));
}

TEST(TopPage, OfAnIdleStoreHasNoRatesAndNoAdoption) {
  StoreLook idle;
  idle.status.epoch = 1;
  const auto page = page_of(idle, idle, {.columns = 80});
  EXPECT_THAT(page, Contains(HasSubstr("- of 0.00/s were there")));
  EXPECT_THAT(page, Not(Contains(AnyOf(HasSubstr("adopted"), HasSubstr("refused")))));
}

}  // namespace
}  // namespace moestro::cli
