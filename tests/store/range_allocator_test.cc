#include "store/arena/range_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace moestro::store {
namespace {

using End = RangeAllocator::End;

TEST(RangeAllocator, GivesFromBothEndsInGranules) {
  RangeAllocator ranges(40960, 4096);
  EXPECT_EQ(ranges.allocate(1, End::kLow), 0u);
  EXPECT_EQ(ranges.allocate(4097, End::kHigh), 32768u);
  EXPECT_EQ(ranges.allocate(4096, End::kLow), 4096u);
  EXPECT_EQ(ranges.free_bytes(), 24576u);
  EXPECT_EQ(ranges.allocate(28672, End::kLow), std::nullopt);
}

TEST(RangeAllocator, CoalescesWithBothNeighbours) {
  RangeAllocator ranges(4 * 4096, 4096);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(ranges.allocate(4096, End::kLow));
  ranges.free(0, 4096);
  ranges.free(8192, 4096);
  EXPECT_EQ(ranges.largest_free(), 4096u);
  ranges.free(4096, 4096);
  EXPECT_EQ(ranges.largest_free(), 3u * 4096);
  ranges.free(12288, 4096);
  EXPECT_EQ(ranges.allocate(4 * 4096, End::kHigh), 0u);
}

TEST(RangeAllocator, RandomUseNeverOverlapsAndLosesNothing) {
  std::mt19937_64 random(7);
  RangeAllocator ranges(1 << 20, 4096);
  std::map<uint64_t, uint64_t> taken;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const uint64_t length = 1 + random() % 100000;
      const auto at = ranges.allocate(length, random() % 2 == 0 ? End::kLow : End::kHigh);
      if (!at) continue;
      ASSERT_LE(*at + ranges.rounded(length), 1u << 20);
      const auto next = taken.lower_bound(*at);
      if (next != taken.end()) ASSERT_LE(*at + ranges.rounded(length), next->first);
      if (next != taken.begin()) ASSERT_LE(std::prev(next)->first + ranges.rounded(std::prev(next)->second), *at);
      taken[*at] = length;
    } else if (!taken.empty()) {
      auto victim = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      ranges.free(victim->first, victim->second);
      taken.erase(victim);
    }
  }
  for (const auto& [offset, length] : taken) ranges.free(offset, length);
  EXPECT_EQ(ranges.largest_free(), 1u << 20);
}

}  // namespace
}  // namespace moestro::store
