#include "orchestrator/scheduler/step_growth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace moestro::orchestrator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Cost = std::function<Nanos(int64_t)>;

constexpr int64_t kUsual = 512, kMost = 4096;

Nanos copies(int64_t tokens) {
  return milliseconds(130) + microseconds(8) * tokens;
}
Nanos computing(int64_t tokens) {
  return milliseconds(2) + microseconds(100) * tokens;
}

/// Steps as large as they may be. Their tokens.
std::vector<int64_t> grown(StepGrowth& growth, const Cost& cost, int count, double longer = 2) {
  std::vector<int64_t> taken;
  for (int i = 0; i < count; ++i) {
    taken.push_back(std::min(kMost, growth.tokens(longer)));
    growth.done(taken.back(), cost(taken.back()));
  }
  return taken;
}

TEST(StepGrowth, DoublesWhileStepsHardlyTakeLonger) {
  StepGrowth growth(kUsual);
  EXPECT_EQ(grown(growth, copies, 6), (std::vector<int64_t>{512, 512, 1024, 2048, 4096, 4096}));
  EXPECT_EQ(growth.tokens(1.25), 2 * kMost) << "163 ms are within 134 and a quarter; beyond nothing was tried";
  EXPECT_EQ(growth.tokens(1.1), 2048) << "146 of 134 ms";
}

TEST(StepGrowth, TriesSeldomWhereStepsTakeAsMuchLongerAsTheyAreLarger) {
  StepGrowth growth(kUsual);
  const auto taken = grown(growth, computing, 900);
  EXPECT_EQ(std::ranges::count(taken, kUsual), 892);
  EXPECT_EQ(std::ranges::count(taken, 2 * kUsual), 8) << "two at once, then less and less often";
  EXPECT_EQ(taken[2], 1024);
}

TEST(StepGrowth, HalfTheGainIsEnough) {
  StepGrowth growth(kUsual);
  const Cost half = [](int64_t tokens) { return milliseconds(60) + microseconds(100) * tokens; };
  EXPECT_EQ(grown(growth, half, 10).back(), 1024) << "1.46 times as long; 2048 would last 2.4 times as long";
}

/// Of 3000 steps the tokens of those that are more than twice as large as usual, after `cold` slow ones.
int64_t too_large(Nanos slow, int cold, double longer) {
  StepGrowth growth(kUsual);
  int steps = 0;
  const Cost cost = [&](int64_t tokens) { return std::max(steps++ < cold ? slow : Nanos(0), computing(tokens)); };
  const auto taken = grown(growth, cost, 3000, longer);
  return std::count_if(taken.begin() + cold, taken.end(), [](int64_t tokens) { return tokens > 2 * kUsual; });
}

TEST(StepGrowth, SlowFirstStepsMakeNoLargeOnes) {
  for (const double longer : {1.25, 2.0})
    for (const int times : {3, 5, 10}) {
      EXPECT_EQ(too_large(times * computing(kUsual), 1, longer), 0) << times;
      for (const int cold : {2, 4, 8}) EXPECT_LE(too_large(times * computing(kUsual), cold, longer), 10) << times;
    }
}

TEST(StepGrowth, ASlowStepIsSoonForgotten) {
  for (int slow = 0; slow < 40; ++slow)
    for (const int count : {1, 2}) {
      StepGrowth growth(kUsual);
      int steps = 0;
      const Cost cost = [&](int64_t tokens) {
        const int step = steps++;
        return step >= slow && step < slow + count ? Nanos(std::chrono::seconds(3)) : copies(tokens);
      };
      const auto taken = grown(growth, cost, slow + 40);
      EXPECT_GE(std::count(taken.begin() + slow, taken.end(), kMost), 20) << slow << ", " << count;
    }
}

TEST(StepGrowth, ShortStepsSayNothing) {
  StepGrowth growth(kUsual);
  for (int i = 0; i < 5000; ++i) growth.done(8, milliseconds(20));
  EXPECT_EQ(growth.tokens(2), kUsual);
  grown(growth, copies, 5);
  for (int i = 0; i < 5000; ++i) growth.done(8, milliseconds(20));
  EXPECT_GE(growth.tokens(2), kMost) << "much decoding does not make it forget";
}

TEST(StepGrowth, WhatHasChangedIsFoundOut) {
  StepGrowth growth(kUsual);
  grown(growth, copies, 50);
  EXPECT_LE(grown(growth, computing, 2000).back(), kUsual) << "everything fits now";
  EXPECT_EQ(grown(growth, copies, 2000).back(), kMost) << "and again it does not";
}

TEST(StepGrowth, ItBearsWhatWorkersSay) {
  StepGrowth growth(kUsual), none(0);
  for (const int64_t tokens : {int64_t{0}, int64_t{512}, int64_t{1} << 50})
    for (const Nanos took : {Nanos(0), Nanos(-5), Nanos(std::chrono::hours(1))}) {
      growth.done(tokens, took), none.done(tokens, took);
      EXPECT_GE(growth.tokens(2), kUsual);
    }
}

}  // namespace
}  // namespace moestro::orchestrator
