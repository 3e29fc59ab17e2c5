// The map of experts in `moestro top`.

#include "services/cli/top/expert_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace moestro::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> texts(const ExpertMap& map, size_t columns, size_t rows) {
  std::vector<std::string> all;
  for (const Line& line : expert_map_lines(map, columns, rows)) all.push_back(line.text());
  return all;
}

ExpertMap small() {
  return read_expert_map(nlohmann::json::parse(
      R"({"layers": 2, "experts": 4, "half_life_s": 60, "shares": [[0.1, 0.4, 0.25, 0.25], [0, 0, 1, 0]]})"));
}

TEST(ExpertMap, HasALineForEachLayerAndACellForEachExpert) {
  EXPECT_THAT(texts(small(), 80, 10),
              ElementsAre("map      recent use of 4 experts (across) in 2 layers (down): 0 .:-=+*#%@ 100.0 % of a "
                          "layer's uses",
                          "       0 ====####********", "       1 ........@@@@...."));
}

TEST(ExpertMap, FoldsWhatDoesNotFitAndShowsTheMostUsed) {
  ExpertMap map{.layers = 10, .experts = 64, .shares = std::vector<float>(640)};
  map.shares[9 * 64 + 63] = 0.5F, map.shares[4 * 64 + 1] = 0.05F;
  const auto page = texts(map, kLabel + 20, 4);
  EXPECT_THAT(page[0], AllOf(HasSubstr("4 experts a cell"), HasSubstr("3 layers a line"), HasSubstr(" 50.0 %")));
  EXPECT_THAT(std::vector(page.begin() + 1, page.end()),
              ElementsAre("     0-2 ................", "     3-5 =...............", "     6-8 ................",
                          "       9 ...............@"));
}

TEST(ExpertMap, IsNoneWhereThereIsNothingToShow) {
  EXPECT_THAT(texts({}, 80, 10), IsEmpty());
  EXPECT_THAT(texts(small(), 10, 10), IsEmpty()) << "no room";
  EXPECT_THAT(texts(small(), 80, 0), IsEmpty());
  const ExpertMap unused{.layers = 1, .experts = 2, .shares = {0, 0}};
  EXPECT_EQ(texts(unused, 80, 1).at(1), "       0 ........");
}

TEST(ExpertMap, WhatAServerSaysMayBeAnything) {
  for (const char* said :
       {"null", "3", "[]", "{}", R"({"layers": 1, "experts": 1})", R"({"layers": 2, "experts": 1, "shares": [[1]]})",
        R"({"layers": 1, "experts": 2, "shares": [[1]]})", R"({"layers": 1, "experts": 1, "shares": [1]})",
        R"({"layers": 100000000, "experts": 1, "shares": []})", R"({"layers": -1, "experts": 1, "shares": "x"})"}) {
    const ExpertMap map = read_expert_map(nlohmann::json::parse(said));
    EXPECT_EQ(map.experts * map.layers, 0u) << said;
  }
  const auto odd =
      read_expert_map(nlohmann::json::parse(R"({"layers": 1, "experts": 3, "shares": [["x", -4, 1e300]]})"));
  EXPECT_EQ(texts(odd, 80, 1).at(1).size(), kLabel + 12) << "a place for each";
}

TEST(ExpertMap, InColourCellsAreShadesFromDarkToLight) {
  const auto lines = expert_map_lines(small(), 80, 10);
  EXPECT_THAT(lines.at(2).drawn(true), ::testing::EndsWith("\x1b[48;5;235m        \x1b[0m\x1b[48;5;229m    \x1b[0m"
                                                           "\x1b[48;5;235m    \x1b[0m"));
}

}  // namespace
}  // namespace moestro::cli
