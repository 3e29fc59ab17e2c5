#include "common/lanes/length_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace moestro::lanes {
namespace {

using Placed = std::vector<std::optional<size_t>>;

TEST(BalanceByLength, TheLongestGoesFirstToTheLeastLoaded) {
  const std::vector<int64_t> lengths{10, 70, 40, 30, 60};
  const std::vector<PlaceRoom> rooms(2, {8, 1000});
  EXPECT_EQ(balance_by_length(lengths, 0, rooms), (Placed{0, 0, 1, 0, 1})) << "70 30 10 and 60 40";
}

TEST(BalanceByLength, AFullOneCloses) {
  const std::vector<int64_t> lengths{9, 8, 7, 6, 5};
  const std::vector<PlaceRoom> rooms{{1, 1000}, {3, 1000}};
  EXPECT_EQ(balance_by_length(lengths, 0, rooms), (Placed{0, 1, 1, 1, std::nullopt})) << "four places in all";
}

TEST(BalanceByLength, WhatACacheCannotHoldIsLeftAndShorterOnesAreNot) {
  const std::vector<int64_t> lengths{50, 20, 40};
  const std::vector<PlaceRoom> rooms{{4, 80}};
  EXPECT_EQ(balance_by_length(lengths, 5, rooms), (Placed{0, 0, std::nullopt})) << "50 and 20 and 5 to come for each";
  EXPECT_EQ(balance_by_length(lengths, 15, rooms), (Placed{0, std::nullopt, std::nullopt}));
}

TEST(BalanceByLength, WhatIsThereAlreadyCounts) {
  const std::vector<int64_t> lengths{10, 10};
  const std::vector<PlaceRoom> rooms{{4, 100, /*tokens=*/25}, {4, 100, 0}};
  EXPECT_EQ(balance_by_length(lengths, 0, rooms), (Placed{1, 1}));
  EXPECT_EQ(balance_by_length(lengths, 0, {}), (Placed{std::nullopt, std::nullopt}));
  EXPECT_TRUE(balance_by_length({}, 0, rooms).empty());
}

/// Longest first to the least loaded is within 4/3 of the best there is (Graham 1969), and so of what any order could
/// be.
TEST(BalanceByLength, LoadsDifferByNoMoreThanTheShortest) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> lengths(20 + random() % 60);
    for (int64_t& n : lengths) n = 1 + static_cast<int64_t>(random() % 500);
    const std::vector<PlaceRoom> rooms(2 + random() % 6, {1000, int64_t{1} << 40});
    const Placed placed = balance_by_length(lengths, 32, rooms);
    std::vector<int64_t> loads(rooms.size()), shortest(rooms.size(), INT64_MAX);
    for (size_t i = 0; i < lengths.size(); ++i) {
      ASSERT_TRUE(placed[i].has_value());
      loads[*placed[i]] += lengths[i];
      shortest[*placed[i]] = std::min(shortest[*placed[i]], lengths[i]);
    }
    const auto most = std::max_element(loads.begin(), loads.end());
    const int64_t least = *std::min_element(loads.begin(), loads.end());
    EXPECT_LE(*most - least, shortest[static_cast<size_t>(most - loads.begin())])
        << "its last went where the load was least";
  }
}

}  // namespace
}  // namespace moestro::lanes
