// Steps that give way at the end of layers, under every schedule that workers run.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "common/lanes/step_driver.h"
#include "tests/lanes/random_steps.h"

namespace moestro::lanes {
namespace {

using testing::RandomRoutes;
using testing::RandomStep;

/// Transfers end in random order, and what is computed has ended when it was started.
class RandomRunner final : public TaskRunner {
 public:
  RandomRunner(uint32_t seed, StepMachine& machine, RandomRoutes& routes)
      : random_(seed), machine_(machine), routes_(routes) {}

  Status start(Lane lane, std::span<const TaskId> tasks, std::vector<TaskId>& ended) override {
    for (const TaskId id : tasks) {
      const Task task = machine_[id];
      EXPECT_TRUE(started_.insert(id).second) << "a task starts twice";
      last_layer_ = std::max(last_layer_, task.layer);
      EXPECT_LE(task.layer, layer_most) << task_name(task.kind) << " of a later layer, in a step that is to park";
      if (!is_compute(lane) && random_() % 3 != 0) {
        under_way_.push_back(id);
        continue;
      }
      if (task.kind == TaskKind::kRouter)
        machine_.routed(task.layer, task.micro_batch, routes_.choose(task.layer, task.micro_batch));
      ended.push_back(id);
    }
    return Status::ok();
  }
  Status wait_any(std::vector<TaskId>& ended) override {
    if (under_way_.empty()) return internal_error("it waits for nothing");
    const size_t i = random_() % under_way_.size();
    ended.push_back(under_way_[i]);
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
    return Status::ok();
  }

  bool waits() const { return !under_way_.empty(); }
  size_t started() const { return started_.size(); }
  int32_t last_layer() const { return last_layer_; }
  int32_t layer_most = TaskGraph::kAnyLayer;

 private:
  std::minstd_rand random_;
  StepMachine& machine_;
  RandomRoutes& routes_;
  std::set<TaskId> started_;
  std::vector<TaskId> under_way_;
  int32_t last_layer_ = -1;
};

/// Wants a break as often as `often` says, of 8.
class RandomBreaks final : public Breaks {
 public:
  RandomBreaks(uint32_t seed, uint32_t often, RandomRunner& runner) : random_(seed), often_(often), runner_(runner) {}
  bool wanted() override {
    if (random_() % 8 >= often_) return false;
    runner_.layer_most = runner_.last_layer();
    return true;
  }
  void take() override {
    EXPECT_FALSE(runner_.waits()) << "something of a step that has parked is under way";
    EXPECT_EQ(std::exchange(runner_.layer_most, TaskGraph::kAnyLayer), runner_.last_layer());
    parked_at.push_back(runner_.last_layer());
    if (on_take) on_take();
  }
  std::vector<int32_t> parked_at;
  std::function<void()> on_take;

 private:
  std::minstd_rand random_;
  const uint32_t often_;
  RandomRunner& runner_;
};

std::unique_ptr<Schedule> make(uint32_t which, const ModelShape& model) {
  if (which == 0) return make_layerwise_schedule(model);
  return make_expert_pipeline_schedule(
      model, {.kv_share = which == 1 ? 1 : 0.5, .by_expert = which != 2, .hot_first = which != 3});
}

TEST(Parking, EveryScheduleParksBetweenLayersAndComesToItsEnd) {
  const ManualClock clock;
  size_t parks = 0;
  for (uint32_t seed = 1; seed <= 800; ++seed) {
    SCOPED_TRACE(seed);
    RandomStep step(seed);
    RandomRoutes routes(seed, step.micro_batches, 0, false);
    const auto schedule = make(seed % 4, step.model), again = make(seed % 4, step.model);

    StepMachine plain(*schedule);
    plain.begin(step.step);
    RandomRunner without(seed, plain, routes);
    ASSERT_TRUE(StepDriver(clock).run(plain, without, nullptr).is_ok());

    StepMachine machine(*again);
    machine.begin(step.step);
    RandomRunner runner(seed, machine, routes);
    RandomBreaks breaks(seed, 1 + seed % 8, runner);
    const auto totals = StepDriver(clock).run(machine, runner, nullptr, &breaks);
    ASSERT_TRUE(totals.is_ok()) << totals.status().message();
    EXPECT_EQ(runner.started(), without.started());
    EXPECT_EQ(static_cast<size_t>(totals->parks), breaks.parked_at.size());
    EXPECT_TRUE(std::ranges::is_sorted(breaks.parked_at, std::less_equal())) << "it parked twice without a layer more";
    EXPECT_LE(breaks.parked_at.size(), step.model.layers.size() + 1);
    parks += breaks.parked_at.size();
  }
  EXPECT_GT(parks, 800u);
}

/// Always wanted: parked before the first layer and after each one but the last.
TEST(Parking, TimeInBreaksIsNotTheSteps) {
  ManualClock clock;
  RandomStep step(5);
  RandomRoutes routes(5, step.micro_batches, 0, false);
  const auto schedule = make_layerwise_schedule(step.model);
  StepMachine machine(*schedule);
  machine.begin(step.step);
  RandomRunner runner(5, machine, routes);
  RandomBreaks breaks(5, 8, runner);
  breaks.on_take = [&clock] { clock.advance(std::chrono::milliseconds(3)); };
  const auto totals = StepDriver(clock).run(machine, runner, nullptr, &breaks);
  ASSERT_TRUE(totals.is_ok()) << totals.status().message();
  ASSERT_EQ(totals->parks, std::ssize(step.model.layers));
  EXPECT_EQ(breaks.parked_at.front(), -1);
  EXPECT_EQ(totals->parked, totals->parks * Nanos(std::chrono::milliseconds(3)));
  EXPECT_EQ(totals->elapsed, Nanos(0));
}

TEST(Parking, AQueueDoesNotPark) {
  RandomStep step(3);
  const auto schedule = make_layerwise_schedule(step.model);
  StepMachine machine(*schedule, kStreamComputes);
  machine.begin(step.step);
  EXPECT_FALSE(machine.may_park());
}

}  // namespace
}  // namespace moestro::lanes
