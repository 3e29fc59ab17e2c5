#include "orchestrator/scheduler/step_growth.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(grown(growth, copies, 5), (std::vector<int64_t>{512, 1024, 2048, 4096, 4096}));
  EXPECT_EQ(growth.tokens(1.25), 2 * kMost) << "163 ms are within 134 and a quarter; beyond nothing was tried";
  EXPECT_EQ(growth.tokens(1.1), 2048) << "146 of 134 ms";
}

TEST(StepGrowth, TriesOnceWhereStepsTakeAsMuchLongerAsTheyAreLarger) {
  StepGrowth growth(kUsual);
  const auto taken = grown(growth, computing, 900);
  EXPECT_EQ(std::ranges::count(taken, kUsual), 899);
  EXPECT_EQ(taken[1], 1024);
}

TEST(StepGrowth, HalfTheGainIsEnough) {
  StepGrowth growth(kUsual);
  const Cost half = [](int64_t tokens) { return milliseconds(60) + microseconds(100) * tokens; };
  EXPECT_EQ(grown(growth, half, 10).back(), 1024) << "1.46 times as long; 2048 would last 2.4 times as long";
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
