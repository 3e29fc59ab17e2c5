// cgo on a device that decides which experts it holds: what must not start before what, in every order of events.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/lanes/random_steps.h"

namespace moestro::lanes {
namespace {

using testing::RandomRoutes;
using testing::RandomStep;

/// Runs a step in random order, so that edges alone keep the order.
class RandomRun {
 public:
  explicit RandomRun(uint32_t seed)
      : step_(seed), routes_(seed, step_.micro_batches, 0, false), schedule_(make_cgo_schedule(step_.model)),
        machine_(*schedule_, kVirtualLanes) {}

  void run() {
    machine_.begin(step_.step);
    std::vector<TaskId> running;
    while (!machine_.all_ended()) {
      for (int lane = 0; lane < kLaneCount; ++lane)
        for (const TaskId id : machine_.start(static_cast<Lane>(lane))) {
          starts(machine_[id]);
          running.push_back(id);
        }
      ASSERT_FALSE(running.empty()) << "nothing runs and nothing ends";
      const size_t i = step_.random() % running.size();
      const TaskId id = running[i];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      ends(machine_[id]);
      machine_.ended(id);
    }
    EXPECT_TRUE(reading_.empty() && waits_.empty());
    EXPECT_EQ(chosen_, computed_) << "each choice is computed";
    EXPECT_EQ(read_, computed_) << "and asked for before";
  }
  int asked_again() const { return asked_again_; }

 private:
  using Use = std::tuple<int32_t, int32_t, int32_t>;  ///< layer, micro-batch, expert

  void starts(const Task& task) {
    EXPECT_NE(task.kind, TaskKind::kWeightRead) << "dense weights stay";
    const std::pair expert(task.layer, task.expert);
    if (task.kind == TaskKind::kExpertRead) {
      EXPECT_EQ(task.lane, Lane::kStoreRead);
      EXPECT_TRUE(reading_.insert(expert).second) << "asked for while it is on its way";
      EXPECT_FALSE(waits_.contains(expert)) << "asked for before the one that asked first has computed";
      asked_again_ += !seen_.insert(expert).second;
    } else if (task.kind == TaskKind::kExpert) {
      EXPECT_TRUE(waits_.contains(expert));
      EXPECT_TRUE(read_.contains({task.layer, task.micro_batch, task.expert}));
    } else if (task.kind == TaskKind::kCombine) {
      for (const RoutedExpert& r : routes_.choose(task.layer, task.micro_batch))
        EXPECT_TRUE(computed_.contains({task.layer, task.micro_batch, r.expert}));
    }
  }
  void ends(const Task& task) {
    const std::pair expert(task.layer, task.expert);
    const Use use{task.layer, task.micro_batch, task.expert};
    if (task.kind == TaskKind::kExpertRead) {
      reading_.erase(expert);
      waits_.insert(expert);
      read_.insert(use);
    } else if (task.kind == TaskKind::kExpert) {
      waits_.erase(expert);
      computed_.insert(use);
    } else if (task.kind == TaskKind::kRouter) {
      const auto routed = routes_.choose(task.layer, task.micro_batch);
      for (const RoutedExpert& r : routed) chosen_.insert({task.layer, task.micro_batch, r.expert});
      machine_.routed(task.layer, task.micro_batch, routed);
    }
  }

  RandomStep step_;
  RandomRoutes routes_;
  std::unique_ptr<Schedule> schedule_;
  StepMachine machine_;
  std::set<std::pair<int32_t, int32_t>> reading_, waits_, seen_;
  std::set<Use> chosen_, read_, computed_;
  int asked_again_ = 0;
};

TEST(CgoOnDevices, AsksForAnExpertOnceAtATimeAndComputesEachChoice) {
  int asked_again = 0;
  for (uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    RandomRun run(seed);
    run.run();
    asked_again += run.asked_again();
    if (HasFailure()) return;
  }
  EXPECT_GT(asked_again, 1000) << "by a later micro-batch";
}

/// While the device lacks an expert of one micro-batch, it computes the next one up to its own experts.
TEST(CgoOnDevices, AMissingExpertDoesNotHoldUpTheNextMicroBatch) {
  const std::vector<MicroBatchShape> micro_batches{{1, 1}, {1, 1}};
  const auto schedule = make_cgo_schedule({.layers = {{.sparse = true, .expert_bytes = 1, .experts = 2}}});
  StepMachine machine(*schedule, kVirtualLanes);
  machine.begin({.tokens = 2, .micro_batches = micro_batches});
  const std::vector<RoutedExpert> choice{{1, 1}};
  std::vector<TaskId> read;
  bool computed = false;
  int routed = 0;
  for (bool some = true; some;) {
    some = false;
    for (int lane = 0; lane < kLaneCount; ++lane) {
      const auto started = machine.start(static_cast<Lane>(lane));
      for (const TaskId id : std::vector<TaskId>(started.begin(), started.end())) {
        some = true;
        const Task task = machine[id];
        if (task.kind == TaskKind::kExpertRead) {
          read.push_back(id);
          continue;
        }
        computed = computed || task.kind == TaskKind::kExpert;
        if (task.kind == TaskKind::kRouter) machine.routed(task.layer, task.micro_batch, choice), ++routed;
        machine.ended(id);
      }
    }
  }
  EXPECT_FALSE(computed);
  EXPECT_EQ(read.size(), 1U) << "the second micro-batch shares it";
  EXPECT_EQ(routed, 2);
}

}  // namespace
}  // namespace moestro::lanes
