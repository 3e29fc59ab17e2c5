// The figures of `moestro top`: what happened between two looks, and the page of 80 columns.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/cli/top/view.h"

namespace moestro::cli {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = 1 << 20;

StoreLook busy() {
  StoreLook look{.status = {}, .at_s = 100};
  auto& s = look.status;
  s.epoch = 7, s.arena_bytes = 1000 * kMiB, s.used_bytes = 750 * kMiB, s.resident_bytes = 500 * kMiB,
  s.huge_bytes = 1000 * kMiB;
  s.reader = "io_uring", s.policy = "lfru", s.loads = 50, s.evictions = 20, s.bytes_read = 900 * kMiB, s.retries = 3,
  s.bad_blobs = 1, s.aliases = 4;
  s.adopted = 128, s.adopted_bytes = 300 * kMiB, s.adopted_seconds = 0.25, s.unchecked = 12, s.refused = 5;
  s.models.push_back({.name = "mixtral",
                      .pack = "/packs/m",
                      .resident_experts = 97,
                      .experts = 128,
                      .workers = 2,
                      .used_bytes = 700 * kMiB,
                      .guaranteed_bytes = 400 * kMiB,
                      .maximal_bytes = 900 * kMiB});
  s.models.push_back({.name = "qwen", .pack = "/packs/q", .experts = 64, .used_bytes = 50 * kMiB, .retired = true});
  s.workers.push_back({.slot = 0,
                       .client = "worker-0",
                       .model = "mixtral",
                       .share_bytes = 80 * kMiB,
                       .pinned = 3,
                       .hits = 900,
                       .misses = 100});
  s.workers.push_back({.slot = 1,
                       .client = "worker-1",
                       .model = "mixtral",
                       .share_bytes = 80 * kMiB,
                       .pinned = 1,
                       .hits = 90,
                       .misses = 110});
  s.reading.drives.push_back({.path = "/packs",
                              .reader = "io_uring",
                              .chunk_bytes = kMiB,
                              .depth = 4,
                              .bytes_per_s = 2000 * kMiB,
                              .bytes_read = 900 * kMiB,
                              .retries = 3});
  s.reading.hits = 990, s.reading.misses = 210;
  s.reading.queued = {3, 2, 0}, s.reading.loading = {1, 0, 1};
  s.reading.prefetches = 12, s.reading.prefetches_used = 9, s.reading.prefetches_late = 2,
  s.reading.prefetches_wasted = 1, s.reading.prefetch_wasted_bytes = 21 * kMiB;
  s.reading.scrubbed_bytes = 100 * kMiB, s.reading.scrub_mismatches = 1;
  return look;
}

StoreLook two_seconds_later() {
  StoreLook look = busy();
  look.at_s += 2;
  auto& s = look.status;
  s.loads += 10, s.evictions += 4, s.bytes_read += 400 * kMiB, s.reading.hits += 180, s.reading.misses += 20;
  s.workers[0].hits += 180, s.workers[0].misses += 20;
  s.reading.drives[0].bytes_read += 400 * kMiB;
  return look;
}

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
  const auto page = top_page(now, rates_between(busy(), now), 80);
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
  EXPECT_THAT(page, Contains(HasSubstr("12 prefetches: 9 used, 2 late, 1 wasted (21.0 MiB), 0 dropped")));
  EXPECT_THAT(page, Contains(HasSubstr("100 MiB compared again, 1 changed")));
  EXPECT_THAT(page, Contains(HasSubstr("128 blobs (300 MiB) in 0.2 s; 12 to check, 0 damaged")));
  EXPECT_THAT(page, Contains(HasSubstr("5 messages")));
  for (const std::string& line : page) EXPECT_LE(line.size(), 80u) << line;
}

TEST(TopPage, OfAnIdleStoreHasNoRatesAndNoAdoption) {
  StoreLook idle;
  idle.status.epoch = 1;
  const auto page = top_page(idle, rates_between(idle, idle), 80);
  EXPECT_THAT(page, Contains(HasSubstr("- of 0.00/s were there")));
  EXPECT_THAT(page, Not(Contains(AnyOf(HasSubstr("adopted"), HasSubstr("refused")))));
}

TEST(TopPage, NamesThatAreLongOrHarmfulStayInTheirColumn) {
  EXPECT_EQ(shortened("mixtral", 24), "mixtral");
  EXPECT_EQ(shortened("abcdefghijklmnop", 10), "abcd..mnop");
  EXPECT_EQ(shortened("\x1b[2J", 24), "\\x1b[2J");
  StoreLook look = busy();
  look.status.models[0].name = std::string(64, 'm'), look.status.workers[0].client = std::string(200, 'w');
  look.status.reading.drives[0].path = "/" + std::string(300, 'd');
  for (const std::string& line : top_page(look, rates_between(look, look), 80)) EXPECT_LE(line.size(), 80u) << line;
  for (const std::string& line : top_page(look, rates_between(look, look), 40)) EXPECT_LE(line.size(), 40u) << line;
}

}  // namespace
}  // namespace moestro::cli
