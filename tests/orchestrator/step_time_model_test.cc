#include "orchestrator/scheduler/step_time_model.h"

#include <gtest/gtest.h>

#include <functional>

namespace moestro::orchestrator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class Steps {
 public:
  void take(int64_t tokens, Nanos took) {
    model.planned(PlanId{++plan_}, tokens);
    model.done(PlanId{plan_}, took);
  }
  StepTimeModel model;

 private:
  uint64_t plan_ = 0;
};

Nanos linear(int64_t tokens) { return milliseconds(2) + microseconds(100) * tokens; }

/// Steps as large as the target seems to allow, as a scheduler with work enough makes them. The largest of the last
/// ten.
int64_t grow(Steps& steps, Nanos target, int count, const std::function<Nanos(int64_t)>& cost, int64_t most = 1 << 20) {
  int64_t largest = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t tokens = std::min(most, steps.model.tokens_within(target));
    steps.take(tokens, cost(tokens));
    if (i >= count - 10) largest = std::max(largest, tokens);
  }
  return largest;
}

TEST(StepTimeModel, StepsGrowToTheTargetAndStayThere) {
  Steps steps;
  const int64_t found = grow(steps, milliseconds(50), 50, linear);
  EXPECT_NEAR(static_cast<double>(found), 480, 15) << "2 ms + 0.1 ms * 480 = 50 ms";
}

TEST(StepTimeModel, ItIsComeToInSteps) {
  Steps steps;
  int64_t largest = steps.model.tokens_within(milliseconds(1000));
  EXPECT_EQ(largest, 16) << "nothing is known yet";
  for (int i = 0; i < 20; ++i) {
    const int64_t tokens = steps.model.tokens_within(milliseconds(1000));
    EXPECT_LE(tokens, 2 * largest) << "what was never tried may be far slower";
    largest = std::max(largest, tokens);
    steps.take(tokens, linear(tokens));
  }
  EXPECT_GT(largest, 9000);
}

TEST(StepTimeModel, AStepBeyondACliffIsNotTakenTwice) {
  Steps steps;
  const auto cliff = [](int64_t tokens) {
    return tokens <= 100 ? Nanos(milliseconds(10)) : Nanos(milliseconds(200));
  };  // 100: what fits in memory, say
  grow(steps, milliseconds(50), 100, cliff);
  int beyond = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t tokens = steps.model.tokens_within(milliseconds(50));
    beyond += tokens > 100;
    steps.take(tokens, cliff(tokens));
  }
  EXPECT_LE(beyond, 10);
}

TEST(StepTimeModel, WhatWasSlowOnceIsTriedAgain) {
  Steps steps;
  for (int i = 0; i < 5; ++i) steps.take(200, milliseconds(900));  // weights were read from disk
  EXPECT_LT(steps.model.tokens_within(milliseconds(50)), 20);
  EXPECT_GT(grow(steps, milliseconds(50), 700, linear), 400);
}

TEST(StepTimeModel, ATargetThatIsBelowASingleTokenStillLeavesOne) {
  Steps steps;
  for (int i = 0; i < 10; ++i) steps.take(8, milliseconds(100));
  EXPECT_EQ(steps.model.tokens_within(milliseconds(1)), 1);
}

TEST(StepTimeModel, ItBearsWhatWorkersSay) {
  StepTimeModel model;
  model.done(PlanId{7}, milliseconds(1));  // that nobody planned
  model.planned(PlanId{8}, 0);
  model.done(PlanId{8}, Nanos(0));         // not measured
  EXPECT_EQ(model.tokens_within(milliseconds(1)), 16);
  for (uint64_t id = 100; id < 10000; ++id) model.planned(PlanId{id}, 1);  // never answered
  model.planned(PlanId{20000}, int64_t{1} << 40);
  model.done(PlanId{20000}, std::chrono::hours(1));
  EXPECT_GE(model.tokens_within(milliseconds(1)), 1);
}

}  // namespace
}  // namespace moestro::orchestrator
