#include "common/nearest_name.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(NearestName, FindsAFewEdits) {
  const std::vector<std::string> names{"--max-tokens", "--model", "pack", "top"};
  EXPECT_EQ(nearest_name("--max-token", names), "--max-tokens");
  EXPECT_EQ(nearest_name("--modle", names), "--model");
  EXPECT_EQ(nearest_name("pakc", names), "pack") << "two neighbours swapped are one edit";
  EXPECT_EQ(nearest_name("--mx-tokns", names), "--max-tokens");
  EXPECT_EQ(nearest_name("top", names), "top");
}

TEST(NearestName, DoesNotGuessWildly) {
  const std::vector<std::string> names{"--max-tokens", "top", "up"};
  EXPECT_EQ(nearest_name("nope", names), std::nullopt) << "half of it would have to change";
  EXPECT_EQ(nearest_name("--frobnicate", names), std::nullopt);
  EXPECT_EQ(nearest_name("ip", names), std::nullopt) << "too short for a guess";
  EXPECT_EQ(nearest_name("", names), std::nullopt);
  EXPECT_EQ(nearest_name("x", {}), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(100'000, 'x'), names), std::nullopt);
}

}  // namespace
}  // namespace moestro
