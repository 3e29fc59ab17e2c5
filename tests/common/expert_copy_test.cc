#include "common/expert_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <vector>

namespace moestro {
namespace {

using enum Want;
using Wants = std::vector<Want>;

Wants wants(std::vector<float> weights, double t1, double t2) {
  Wants out(weights.size(), kNone);
  wants_of_token(weights, {.t1 = t1, .t2 = t2}, out);
  return out;
}

TEST(ExpertCopy, TheSumOfTheWeightsBeforeAnExpertDecides) {
  // Scores 0, 0.5, 0.8, 0.95, in whatever order and at whatever sum the weights come.
  EXPECT_EQ(wants({0.5F, 0.3F, 0.15F, 0.05F}, 0.6, 0.9), (Wants{kFull, kFull, kLow, kNone}));
  EXPECT_EQ(wants({5, 30, 50, 15}, 0.6, 0.9), (Wants{kNone, kFull, kFull, kLow}));
  EXPECT_EQ(wants({0.5F, 0.25F, 0.25F}, 0.5, 0.75), (Wants{kFull, kFull, kLow}))
      << "a score at a threshold is below it";
  EXPECT_EQ(wants({0.5F, 0.25F, 0.25F}, 0.25, 0.5), (Wants{kFull, kLow, kNone})) << "of equal weights the first";
}

TEST(ExpertCopy, TheFirstExpertIsAlwaysWantedFull) {
  EXPECT_EQ(wants({0.9F}, 0, 0), (Wants{kFull}));
  EXPECT_EQ(wants({0.2F, 0.8F}, 0, 0), (Wants{kNone, kFull}));
}

TEST(ExpertCopy, ASecondThresholdOf1LeavesNothingOut) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (int token = 0; token < 20000; ++token) {
    std::vector<float> weights(2 + random() % 15);
    for (float& w : weights) w = uniform(random);
    weights.back() = 0;  // its score is 1, whatever the sums were rounded to
    const Wants out = wants(weights, 0.6, 1);
    ASSERT_EQ(std::ranges::count(out, kNone), 0) << token;
    ASSERT_EQ(out.back(), kLow) << token;
  }
}

/// The rule as the paper has it: sort, then add up.
TEST(ExpertCopy, AgreesWithSortingAndAddingUp) {
  std::mt19937 random(11);
  for (int token = 0; token < 5000; ++token) {
    std::vector<float> weights(1 + random() % 10);
    for (float& w : weights) w = static_cast<float>(random() % 64) / 64;  // sums are exact, ties are frequent
    double total = 0;
    for (const float w : weights) total += static_cast<double>(w);
    std::vector<size_t> order(weights.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return weights[a] > weights[b]; });
    Wants expected(weights.size(), kFull);
    double before = 0;
    for (const size_t i : order) {
      if (total > 0) expected[i] = before / total <= 0.4 ? kFull : before / total <= 0.8 ? kLow : kNone;
      before += static_cast<double>(weights[i]);
    }
    ASSERT_EQ(wants(weights, 0.4, 0.8), expected) << token;
  }
}

TEST(ExpertCopy, WeightsWithoutAUsableSumAreWantedFull) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Wants full{kFull, kFull};
  EXPECT_EQ(wants({nan, 0.1F}, 0, 0), full);
  EXPECT_EQ(wants({inf, 0.1F}, 0, 0), full);
  EXPECT_EQ(wants({0.5F, -0.1F}, 0, 0), full);
  EXPECT_EQ(wants({0, 0}, 0, 0), full);
  EXPECT_EQ(wants({}, 0, 0), Wants{});
}

TEST(ExpertCopy, OnlyAMissIsServedByLess) {
  constexpr bool kThere = true, kMissing = false;
  for (const Want want : {kNone, kLow, kFull})
    for (const bool low : {kThere, kMissing}) EXPECT_EQ(serving_copy(want, kThere, low), Copy::kFull);
  for (const bool low : {kThere, kMissing}) {
    EXPECT_EQ(serving_copy(kFull, kMissing, low), Copy::kFull) << "it is waited for";
    EXPECT_EQ(serving_copy(kLow, kMissing, low), Copy::kLow);
  }
  EXPECT_EQ(serving_copy(kNone, kMissing, kThere), Copy::kLow) << "nothing is left out that is there";
  EXPECT_EQ(serving_copy(kNone, kMissing, kMissing), std::nullopt);
}

TEST(ExpertCopy, OfSeveralTokensTheGreatestWantCounts) {
  EXPECT_EQ(std::max(kLow, kFull), kFull);
  EXPECT_EQ(std::max(kNone, kLow), kLow);
}

}  // namespace
}  // namespace moestro
