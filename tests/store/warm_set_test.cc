// The warm set's file, and the account of reading it again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/arena/text_file.h"
#include "store/server/warm_load.h"
#include "store/server/warm_set.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Fate = WarmLoad::Fate;
constexpr WarmLoad::TimePoint kStart{};
const auto kUnderWay = [](uint32_t) { return Fate::kUnderWay; };
const auto kThere = [](uint32_t) { return Fate::kThere; };

/// The bytes that a store of version 1 wrote.
constexpr const char* kGolden =
    "moestro-warm-set 1\n"
    "pack 7f3a90c1d2e4b586\n"
    "pack 00000000000000ff\n"
    "0 17 3.25\n"
    "1 0 1e-05\n"
    "0 4 0\n"
    "checksum ae3882715edccb9b\n";

WarmSet example() { return {{0x7f3a90c1d2e4b586, 0xff}, {{0, 17, 3.25}, {1, 0, 1e-5}, {0, 4, 0}}}; }

TEST(WarmSet, IsWrittenAsItAlwaysWas) { EXPECT_EQ(serialise_warm_set(example()), kGolden); }

TEST(WarmSet, IsReadAsItWasWritten) {
  const auto set = parse_warm_set(kGolden);
  ASSERT_TRUE(set) << set.status().message();
  EXPECT_EQ(set->packs, example().packs);
  ASSERT_EQ(set->items.size(), 3u);
  EXPECT_EQ(set->items[0].blob, 17u);
  EXPECT_EQ(set->items[1].pack, 1u);
  EXPECT_DOUBLE_EQ(set->items[0].heat, 3.25);
}

TEST(WarmSet, WhatIsDamagedIsSaid) {
  testing::TemporaryDirectory dir;
  EXPECT_EQ(read_warm_set(dir / "none").status().code(), Code::kNotFound);
  ASSERT_TRUE(write_warm_set(dir / "set", example()));
  EXPECT_TRUE(read_warm_set(dir / "set"));
  for (size_t at = 0; at < std::string(kGolden).size(); ++at) {
    std::string text = kGolden;
    text[at] ^= 1;
    EXPECT_FALSE(parse_warm_set(text)) << "byte " << at;
    EXPECT_FALSE(parse_warm_set(text.substr(0, at)));
  }
  testing::write_text(dir / "cut", std::string(kGolden).substr(0, 60));
  EXPECT_THAT(read_warm_set(dir / "cut").status().message(), HasSubstr((dir / "cut").string()));
}

TEST(WarmSet, LinesThatSayNothingAreRefusedBehindARightChecksum) {
  const std::string head = "moestro-warm-set 1\npack 00000000000000ff\n";
  for (const char* line :
       {"1 0 1", "0", "0 1", "0 x 1", "0 1 nan", "0 1 -1", "0 1 inf x", "0 4294967296 1", "pack", "checksum 0"})
    EXPECT_FALSE(parse_warm_set(with_checksum(head + line + "\n"))) << line;
  EXPECT_EQ(parse_warm_set(with_checksum("moestro-warm-set 2\n")).status().code(), Code::kUnsupported);
  EXPECT_TRUE(parse_warm_set(with_checksum(head)));
}

TEST(WarmLoad, KeepsSoMuchUnderWayAndCountsWhatIsThere) {
  WarmLoad load;
  EXPECT_FALSE(load.running());
  load.plan({{1, 0, 10}, {2, 0, 10}, {3, 0, 10}, {4, 0, 10}}, kStart);
  EXPECT_THAT(load.step(kThere, 25, kStart), ElementsAre(1, 2)) << "nothing had been named before";
  EXPECT_THAT(load.step(kUnderWay, 25, kStart), IsEmpty());
  EXPECT_THAT(load.outstanding(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(load.step([](uint32_t e) { return e == 2 ? Fate::kThere : Fate::kUnderWay; }, 25, kStart),
              ElementsAre(3));
  EXPECT_EQ(load.progress(kStart).bytes_there, 10u);
  EXPECT_THAT(load.outstanding(), ElementsAre(1, 3, 4));
  EXPECT_THAT(load.step(kThere, 25, kStart), ElementsAre(4));
  EXPECT_TRUE(load.running());
  EXPECT_THAT(load.step(kThere, 25, kStart + std::chrono::seconds(3)), IsEmpty());
  EXPECT_FALSE(load.running());
  const auto p = load.progress(kStart + std::chrono::seconds(9));
  EXPECT_EQ(p.blobs_there, 4u);
  EXPECT_EQ(p.bytes, 40u);
  EXPECT_DOUBLE_EQ(p.seconds, 3);
}

TEST(WarmLoad, OneThatIsLargerThanTheLimitGoesAlone) {
  WarmLoad load;
  load.plan({{1, 0, 100}, {2, 0, 1}}, kStart);
  EXPECT_THAT(load.step(kUnderWay, 25, kStart), ElementsAre(1));
  EXPECT_THAT(load.step(kUnderWay, 25, kStart), IsEmpty());
}

TEST(WarmLoad, WhereOneFoundNoRoomOnlySmallerOnesAreTried) {
  WarmLoad load;
  load.plan({{1, 0, 10}, {2, 0, 10}, {3, 0, 4}, {4, 7, 10}, {5, 0, 12}}, kStart);
  EXPECT_THAT(load.step(kUnderWay, 10, kStart), ElementsAre(1));
  EXPECT_THAT(load.step([](uint32_t) { return Fate::kNoRoom; }, 14, kStart), ElementsAre(3, 4))
      << "another model has its own room";
  EXPECT_THAT(load.step(kThere, 14, kStart), IsEmpty());
  EXPECT_FALSE(load.running());
  EXPECT_EQ(load.progress(kStart).left_out, 3u);
}

TEST(WarmLoad, OneThatCannotBeReadKeepsNobodyWaiting) {
  WarmLoad load;
  load.plan({{1, 0, 10}, {2, 0, 10}}, kStart);
  EXPECT_THAT(load.step(kUnderWay, 10, kStart), ElementsAre(1));
  EXPECT_THAT(load.step([](uint32_t) { return Fate::kFailed; }, 10, kStart), ElementsAre(2));
  EXPECT_EQ(load.progress(kStart).left_out, 1u);
}

TEST(WarmLoad, AnEmptySetIsDone) {
  WarmLoad load;
  load.plan({}, kStart);
  EXPECT_FALSE(load.running());
}

}  // namespace
}  // namespace moestro::store
