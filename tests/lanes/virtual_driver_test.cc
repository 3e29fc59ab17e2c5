#include "common/lanes/virtual_driver.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/lanes/recorded_timeline.h"

namespace moestro::lanes {
namespace {

using namespace std::chrono_literals;

LaneRate bytes_a_nano(double bytes, bool interrupts = false) {
  return {.bytes_per_s = bytes * 1e9, .interrupts = interrupts};
}

/// One sparse layer; the tasks that a test wants, in its order.
class Tasks final : public Schedule {
 public:
  std::function<void(TaskGraph&)> first, then = [](TaskGraph&) {};
  void begin(const StepShape&, TaskGraph& graph) override { first(graph); }
  void expand(int32_t, int32_t, std::span<const RoutedExpert>, std::span<const Place>, TaskGraph& graph) override {
    then(graph);
  }
};

struct OneExpert final : VirtualRouter {
  std::span<const RoutedExpert> choose(int32_t, int32_t) override { return expert; }
  std::array<RoutedExpert, 1> expert{{{0, 1}}};
};

struct Driven {
  explicit Driven(Tasks& tasks, const LaneRates& rates) : machine(tasks, kVirtualLanes), driver(rates) {
    machine.begin({.tokens = 1});
  }
  Result<ExecutionTotals> run() { return driver.run(machine, router, &timeline); }
  StepMachine machine;
  VirtualDriver driver;
  OneExpert router;
  RecordedTimeline timeline;
};

TEST(LaneRate, TheLongerOfArithmeticAndTrafficCounts) {
  const LaneRate rate{.flops_per_s = 2e9, .bytes_per_s = 1e9, .overhead = 5ns};
  EXPECT_EQ(rate.duration({100, 10}), 55ns);
  EXPECT_EQ(rate.duration({100, 80}), 85ns);
  EXPECT_EQ(LaneRate{}.duration({1e12, 1e12}), 0ns);
}

TEST(VirtualDriver, LanesWorkAtOnceAndEachOnOneTaskInTheSchedulesOrder) {
  Tasks tasks;
  tasks.first = [](TaskGraph& graph) {
    const TaskId copy = graph.add({.lane = Lane::kHostToDevice, .kind = TaskKind::kKvLoad, .cost = {0, 30}});
    graph.add({.kind = TaskKind::kAttention, .cost = {0, 10}}, std::array{copy});
    graph.add({.kind = TaskKind::kEmbed, .cost = {0, 20}});
    graph.add({.kind = TaskKind::kEmbed, .cost = {0, 25}});
  };
  Driven driven(tasks, {bytes_a_nano(1), {}, bytes_a_nano(1), {}, {}});
  const auto totals = driven.run();
  ASSERT_TRUE(totals.is_ok());
  EXPECT_EQ(totals->elapsed, 55ns);  // 20, 25 and then the attention, which was not ready at 20
  EXPECT_EQ(totals->busy[0], 55ns);
  EXPECT_EQ(totals->busy[static_cast<int>(Lane::kHostToDevice)], 30ns);
  EXPECT_EQ(totals->stalled, 0ns);
  ASSERT_EQ(driven.timeline.slices().size(), 4u);
  EXPECT_EQ(driven.timeline.slices().back().task.kind, TaskKind::kAttention);
  EXPECT_EQ(driven.timeline.slices().back().begin, 45ns);
}

TEST(VirtualDriver, TimesThatAreKnownBetterCountInPlaceOfRates) {
  struct ByKind final : TaskTimes {
    Nanos duration(const Task& task) const override { return task.kind == TaskKind::kKvLoad ? 7ns : 4ns; }
  };
  Tasks tasks;
  tasks.first = [](TaskGraph& graph) {
    const TaskId copy = graph.add({.lane = Lane::kHostToDevice, .kind = TaskKind::kKvLoad, .cost = {0, 30}});
    graph.add({.kind = TaskKind::kAttention, .cost = {0, 10}}, std::array{copy});
  };
  const LaneRates rates{bytes_a_nano(1), {}, bytes_a_nano(1), {}, {}};
  const ByKind times;
  StepMachine machine(tasks, kVirtualLanes);
  machine.begin({.tokens = 1});
  OneExpert router;
  VirtualDriver driver(rates, &times);
  const auto totals = driver.run(machine, router, nullptr);
  ASSERT_TRUE(totals.is_ok());
  EXPECT_EQ(totals->elapsed, 11ns);
  EXPECT_EQ(totals->busy[static_cast<int>(Lane::kHostToDevice)], 7ns);
}

TEST(VirtualDriver, WhatIsUrgentInterruptsWhereTheLaneAllowsIt) {
  Tasks tasks;
  tasks.first = [](TaskGraph& graph) {
    const TaskId quick = graph.add({.kind = TaskKind::kEmbed, .cost = {0, 10}});
    graph.add({.lane = Lane::kHostToDevice, .kind = TaskKind::kKvLoad, .cost = {0, 5}}, std::array{quick});
    graph.add({.lane = Lane::kHostToDevice, .kind = TaskKind::kExpertRead, .cost = {0, 30}});
  };
  for (const bool interrupts : {false, true}) {
    Driven driven(tasks, {bytes_a_nano(1), {}, bytes_a_nano(1, interrupts), {}, {}});
    const auto totals = driven.run();
    ASSERT_TRUE(totals.is_ok());
    EXPECT_EQ(totals->elapsed, 35ns);
    EXPECT_EQ(totals->busy[static_cast<int>(Lane::kHostToDevice)], 35ns);
    EXPECT_EQ(totals->stalled, 25ns);
    EXPECT_EQ(totals->kv_stalled, 5ns) << "the rest is for an expert";
    const auto& slices = driven.timeline.slices();
    const auto load = std::ranges::find(slices, TaskKind::kKvLoad, [](const Slice& s) { return s.task.kind; });
    EXPECT_EQ(load->begin, interrupts ? 10ns : 30ns);
    EXPECT_EQ(slices.size(), interrupts ? 4u : 3u) << "an interrupted copy is drawn twice";
  }
}

TEST(VirtualDriver, RoutersChooseAndWhatFollowsRuns) {
  Tasks tasks;
  tasks.first = [](TaskGraph& graph) { graph.add({.kind = TaskKind::kRouter, .layer = 0, .cost = {0, 4}}); };
  tasks.then = [](TaskGraph& graph) { graph.add({.kind = TaskKind::kExpert, .cost = {0, 6}}); };
  Driven driven(tasks, {bytes_a_nano(1), {}, {}, {}, {}});
  ASSERT_TRUE(driven.run().is_ok());
  EXPECT_EQ(driven.driver.now(), 10ns);
  driven.machine.begin({.tokens = 1});
  ASSERT_TRUE(driven.run().is_ok());
  EXPECT_EQ(driven.driver.now(), 20ns) << "the next step begins where the last one ended";
}

TEST(VirtualDriver, RefusesALaneThatIsNotThereAndGoesOnAfterwards) {
  Tasks tasks;
  tasks.first = [](TaskGraph& graph) {
    graph.add({.kind = TaskKind::kEmbed, .cost = {0, 4}});
    graph.add({.lane = Lane::kHostCompute, .kind = TaskKind::kAttend});
  };
  Driven driven(tasks, {bytes_a_nano(1), {}, {}, {}, {}});
  const auto refused = driven.run();
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  EXPECT_EQ(refused.status().message(), "the machine has no lane 'host compute', which the task 'attend' needs");
  tasks.first = [](TaskGraph& graph) { graph.add({.kind = TaskKind::kEmbed, .cost = {0, 4}}); };
  driven.machine.begin({.tokens = 1});
  const auto totals = driven.run();
  ASSERT_TRUE(totals.is_ok());
  EXPECT_EQ(totals->elapsed, 4ns);
}

TEST(VirtualDriver, ATaskThatNothingLetsStartIsAnErrorAndNoHang) {
  Tasks tasks;
  tasks.first = [](TaskGraph& graph) { graph.add_held({.kind = TaskKind::kCombine}, {}); };
  Driven driven(tasks, {bytes_a_nano(1), {}, {}, {}, {}});
  EXPECT_EQ(driven.run().status().code(), Code::kInternal);
}

}  // namespace
}  // namespace moestro::lanes
