#include "store/arena/segment_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
constexpr uint64_t kPage = 4096;

std::vector<uint32_t> keys(const std::vector<SegmentAllocator::Occupant>& found) {
  std::vector<uint32_t> list;
  for (const auto& occupant : found) list.push_back(occupant.key);
  return list;
}

TEST(SegmentAllocator, OneLengthWastesNothing) {
  EXPECT_EQ(choose_segment_bytes(std::vector<SizeShare>{{3 * kPage, 300 * kPage}}, 30 * kPage), 3 * kPage);
  SegmentAllocator segments(kPage, 30 * kPage, 3 * kPage);
  for (uint32_t key = 0; key < 10; ++key) EXPECT_TRUE(segments.take(3 * kPage - 5, key));
  EXPECT_FALSE(segments.take(3 * kPage, 10));
  EXPECT_EQ(segments.used_bytes(), 30 * kPage);
}

TEST(SegmentAllocator, SeveralLengthsWasteLittle) {
  for (uint64_t small = 1; small <= 40;
       ++small) {  // a 40-page expert beside shorter ones, half of the bytes each, in 1,000 pages
    const std::vector<SizeShare> sizes{{40 * kPage, 1000 * kPage}, {small * kPage, 1000 * kPage}};
    const uint64_t segment = choose_segment_bytes(sizes, 1000 * kPage);
    EXPECT_GE(segment, 40 * kPage);
    const double tails =
        static_cast<double>(segment % (40 * kPage) + segment % (small * kPage)) / 2.0 / static_cast<double>(segment);
    EXPECT_LE(tails, 0.12) << small;
  }
}

TEST(SegmentAllocator, AnEmptySegmentChangesItsLength) {
  SegmentAllocator segments(0, 8 * kPage, 4 * kPage);
  const auto a = segments.take(kPage, 1), b = segments.take(2 * kPage, 2);
  EXPECT_EQ(*a, 4 * kPage) << "from the high end";
  EXPECT_EQ(*b, 0u);
  EXPECT_FALSE(segments.take(4 * kPage, 3));
  EXPECT_EQ(segments.take(kPage, 4), 5 * kPage) << "beside its like";
  std::vector<SegmentAllocator::Occupant> found;
  ASSERT_TRUE(segments.occupants(1, 1, 4 * kPage, found));
  EXPECT_THAT(keys(found), ElementsAre(1, 4));
  EXPECT_FALSE(segments.occupants(1, 1, kPage, found)) << "no gain";
  segments.give_back(4 * kPage), segments.give_back(5 * kPage);
  EXPECT_EQ(segments.take(4 * kPage, 3), 4 * kPage);
  EXPECT_EQ(segments.free_segments(), 0u);
}

TEST(SegmentAllocator, WhatIsLongerThanASegmentTakesSeveral) {
  SegmentAllocator segments(0, 9 * kPage, 2 * kPage);
  EXPECT_EQ(segments.segments(), 4u);
  ASSERT_TRUE(segments.take(kPage, 1));  // in segment 3
  EXPECT_EQ(segments.take(3 * kPage, 2), 0u) << "segments 0 and 1";
  EXPECT_FALSE(segments.take(3 * kPage, 3));
  EXPECT_TRUE(segments.lend(2, 1));
  EXPECT_FALSE(segments.lend(1, 2)) << "not free";
  std::vector<SegmentAllocator::Occupant> found;
  EXPECT_FALSE(segments.occupants(2, 2, 3 * kPage, found)) << "lent";
  ASSERT_TRUE(segments.occupants(1, 1, kPage, found));
  EXPECT_THAT(keys(found), ElementsAre(2)) << "its block goes whole";
  segments.take_home(2), segments.give_back(6 * kPage);
  EXPECT_EQ(segments.take(3 * kPage, 3), 4 * kPage);
}

TEST(SegmentAllocator, TakesTheVeryPlaceAgainAndNoOther) {
  SegmentAllocator segments(kPage, 12 * kPage, 4 * kPage);
  EXPECT_TRUE(segments.take_at(5 * kPage, 3 * kPage, 1));
  EXPECT_FALSE(segments.take_at(5 * kPage, 3 * kPage, 2)) << "taken";
  EXPECT_FALSE(segments.take_at(6 * kPage, kPage, 2)) << "another class";
  EXPECT_FALSE(segments.take_at(2 * kPage, 3 * kPage, 2)) << "not a slot";
  EXPECT_FALSE(segments.take_at(0, kPage, 2)) << "below the first";
  EXPECT_FALSE(segments.take_at(13 * kPage, kPage, 2)) << "beyond the last";
  EXPECT_FALSE(segments.take_at(UINT64_MAX - kPage + 1, kPage, 2));
  EXPECT_FALSE(segments.take_at(kPage, UINT64_MAX / 2, 2));
  EXPECT_TRUE(segments.take_at(4 * kPage, kPage, 2)) << "the fourth of segment 0";
}

/// Blobs of five lengths come and go. When one finds no room, no more holds nothing than what the bound says. A second
/// allocator, given the same places in another order, is the same.
TEST(SegmentAllocator, RandomUseNeverOverlapsAndWastesNoMoreThanItSays) {
  const std::vector<uint64_t> lengths{kPage, 2 * kPage, 5 * kPage, 12 * kPage, 16 * kPage};
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SegmentAllocator segments(0, 640 * kPage, 16 * kPage);
    std::map<uint64_t, std::pair<uint64_t, uint32_t>> taken;  // offset -> length, key
    for (uint32_t key = 0; key < 3000; ++key) {
      const uint64_t length = lengths[random() % lengths.size()];
      if (const auto offset = segments.take(length, key)) {
        const auto next = taken.lower_bound(*offset);
        ASSERT_TRUE(next == taken.end() || *offset + length <= next->first);
        ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second.first <= *offset);
        taken[*offset] = {length, key};
        continue;
      }
      ASSERT_LE(640 * kPage - segments.used_bytes(), segments.waste_bound(lengths));
      // As the store does: one of the same length goes, or all of a segment.
      std::vector<SegmentAllocator::Occupant> found;
      const auto segment = static_cast<uint32_t>(random() % segments.segments());
      if (!segments.occupants(segment, 1, length, found)) continue;
      std::erase_if(taken, [&](const auto& t) {
        const bool goes =
            std::ranges::any_of(found, [&](const auto& occupant) { return occupant.key == t.second.second; });
        if (goes) segments.give_back(t.first);
        return goes;
      });
    }
    SegmentAllocator again(0, 640 * kPage, 16 * kPage);
    for (auto at = taken.rbegin(); at != taken.rend(); ++at)
      ASSERT_TRUE(again.take_at(at->first, at->second.first, at->second.second));
    EXPECT_EQ(again.used_bytes(), segments.used_bytes());
    EXPECT_EQ(again.free_segments(), segments.free_segments());
    for (const auto& [offset, blob] : taken) again.give_back(offset);
    EXPECT_EQ(again.free_segments(), 40u);
  }
}

}  // namespace
}  // namespace moestro::store
