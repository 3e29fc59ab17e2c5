// The schedules for throughput: what must not start before what, in every order of events, and what their parts are
// worth on virtual lanes.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "tests/kernels/counted_allocations.h"
#include "tests/lanes/random_steps.h"
#include "tests/lanes/recorded_timeline.h"

namespace moestro::lanes {
namespace {

using testing::RandomRoutes;
using testing::RandomStep;
using What = std::tuple<TaskKind, int32_t, int32_t>;  ///< kind, layer, micro-batch or expert

What what(const Task& t) {
  const bool of_expert = t.kind == TaskKind::kExpert || t.kind == TaskKind::kExpertRead;
  return {t.kind, t.layer, of_expert ? t.expert : t.micro_batch};
}

/// Starts and ends ready tasks in random order, so that edges alone keep the order. `check` sees each start and end.
template <class Check>
void run_in_random_order(StepMachine& machine, RandomRoutes& routes, std::minstd_rand& random, Check& check) {
  std::vector<TaskId> running;
  while (!machine.all_ended()) {
    for (int lane = 0; lane < kLaneCount; ++lane)
      for (const TaskId id : machine.start(static_cast<Lane>(lane))) {
        check.starts(machine[id]);
        running.push_back(id);
      }
    if (::testing::Test::HasFailure()) return;
    ASSERT_FALSE(running.empty()) << "nothing runs and nothing ends";
    const size_t i = random() % running.size();
    const TaskId id = running[i];
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    const Task task = machine[id];
    check.ends(task);
    if (task.kind == TaskKind::kRouter)
      machine.routed(task.layer, task.micro_batch, routes.choose(task.layer, task.micro_batch));
    machine.ended(id);
  }
}

/// What both schedules promise.
class Checked {
 public:
  explicit Checked(const RandomStep& step) : step_(step) {}
  void starts(const Task& task) {
    EXPECT_TRUE(started_.insert(what(task)).second || task.kind == TaskKind::kWeightRead)
        << task_name(task.kind) << " of layer " << task.layer << " twice";
  }
  void ends(const Task& task) { ended_.insert(what(task)); }
  bool has_ended(TaskKind kind, int32_t layer, int32_t of) const { return ended_.contains({kind, layer, of}); }
  void needs(TaskKind kind, int32_t layer, int32_t of, const Task& by) const {
    EXPECT_TRUE(has_ended(kind, layer, of)) << task_name(by.kind) << " of layer " << layer << " (" << by.micro_batch
                                            << ") before " << task_name(kind) << " " << of;
  }
  /// All rows of a layer have left it, or those of one micro-batch.
  void needs_layer(int32_t layer, int32_t of, const Task& by) const {
    if (layer < 0) return needs(TaskKind::kEmbed, -1, kAllMicroBatches, by);
    const bool sparse = step_.model.layers[static_cast<size_t>(layer)].sparse;
    needs(sparse ? TaskKind::kCombine : TaskKind::kDenseMlp, layer, of, by);
  }
  size_t count(TaskKind kind, int32_t layer) const {
    return static_cast<size_t>(std::ranges::count_if(
        ended_, [&](const What& w) { return std::get<0>(w) == kind && std::get<1>(w) == layer; }));
  }

 protected:
  const RandomStep& step_;
  std::set<What> started_;
  std::multiset<What> ended_;
};

struct PipelineSetup {
  explicit PipelineSetup(RandomStep& step)
      : options{.dense_share = step.random() % 3 / 2.0,
                .kv_share = step.random() % 3 / 2.0,
                .dense_ahead = step.random() % 2 == 0,
                .expert_slots = 1 + static_cast<int32_t>(step.random() % 12),
                .early = step.random() % 2 == 0},
        routes(step.random(), step.micro_batches, static_cast<int32_t>(step.random() % 9), step.random() % 2 == 0) {}
  ExpertPipelineOptions options;
  RandomRoutes routes;
};

class PipelineChecked final : public Checked {
 public:
  PipelineChecked(const RandomStep& step, PipelineSetup& setup)
      : Checked(step), options_(setup.options), routes_(setup.routes) {}

  void starts(const Task& task) {
    Checked::starts(task);
    const int32_t l = task.layer, b = task.micro_batch;
    const auto& rows = [&]() -> const MicroBatchShape& { return step_.micro_batches[static_cast<size_t>(b)]; };
    switch (task.kind) {
      case TaskKind::kKvLoad: takes_kv(l, b); break;
      case TaskKind::kWeightRead:
        if (l > 1) needs_layer(l - 2, kAllMicroBatches, task);
        break;
      case TaskKind::kAttention:
        needs_layer(l - 1, kAllMicroBatches, task);
        if (options_.dense_share < 1) needs(TaskKind::kWeightRead, l, kAllMicroBatches, task);
        if (options_.kv_share < 1) {
          if (rows().cached > 0) needs(TaskKind::kKvLoad, l, b, task);
          else takes_kv(l, b);
        }
        break;
      case TaskKind::kRouter:
        needs(TaskKind::kAttention, l, b, task);
        if (options_.dense_share < 1)
          EXPECT_EQ(ended_.count({TaskKind::kWeightRead, l, kAllMicroBatches}), options_.dense_ahead ? 1u : 2u)
              << "the gate is a read of its own, unless a device takes whole layers";
        break;
      case TaskKind::kKvSave: needs(TaskKind::kAttention, l, b, task); break;
      case TaskKind::kExpertRead:
        EXPECT_FALSE(routes_.is_resident(l, task.expert));
        slots_.insert({l, task.expert});
        EXPECT_LE(slots_.size(), static_cast<size_t>(options_.expert_slots));
        break;
      case TaskKind::kExpert:
        EXPECT_EQ(task.rows, rows_of(l, task.expert));
        if (!routes_.is_resident(l, task.expert)) needs(TaskKind::kExpertRead, l, task.expert, task);
        break;
      case TaskKind::kCombine:
        for (int32_t e = 0; e < testing::kModelExperts; ++e)
          if (rows_of(l, e) > 0) needs(TaskKind::kExpert, l, e, task);
        break;
      case TaskKind::kHead: needs_layer(static_cast<int32_t>(step_.model.layers.size()) - 1, -1, task); break;
      default: break;
    }
  }
  void ends(const Task& task) {
    Checked::ends(task);
    if (task.kind == TaskKind::kKvSave) kv_.erase({task.layer, task.micro_batch});
    const bool unused = task.kind == TaskKind::kExpertRead && rows_of(task.layer, task.expert) == 0;
    if (task.kind == TaskKind::kExpert || unused) slots_.erase({task.layer, task.expert});
  }
  void all_ended() const {
    EXPECT_TRUE(kv_.empty() && slots_.empty());
    for (size_t l = 0; l < step_.model.layers.size(); ++l) {
      const auto layer = static_cast<int32_t>(l);
      const size_t batches = step_.micro_batches.size();
      EXPECT_EQ(count(TaskKind::kAttention, layer), batches);
      EXPECT_EQ(count(TaskKind::kKvSave, layer), options_.kv_share < 1 ? batches : 0);
      EXPECT_EQ(count(TaskKind::kRouter, layer), step_.model.layers[l].sparse ? batches : 0);
    }
  }

 private:
  void takes_kv(int32_t layer, int32_t micro_batch) {
    kv_.insert({layer, micro_batch});
    EXPECT_LE(kv_.size(), 3u);
  }
  int32_t rows_of(int32_t layer, int32_t expert) {
    int32_t rows = 0;
    for (int32_t b = 0; b < std::ssize(step_.micro_batches); ++b)
      for (const RoutedExpert& r : routes_.choose(layer, b))
        if (r.expert == expert) rows += r.rows;
    return rows;
  }
  const ExpertPipelineOptions options_;
  RandomRoutes& routes_;
  std::set<std::pair<int32_t, int32_t>> kv_, slots_;
};

TEST(ExpertPipeline, NothingStartsBeforeWhatItNeedsAndEverythingEnds) {
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(seed);
    RandomStep step(seed);
    PipelineSetup setup(step);
    const auto schedule = make_expert_pipeline_schedule(step.model, setup.options, setup.routes);
    StepMachine machine(*schedule, kVirtualLanes);
    machine.begin(step.step);
    PipelineChecked checked(step, setup);
    run_in_random_order(machine, setup.routes, step.random, checked);
    if (HasFailure()) return;
    checked.all_ended();
  }
}

std::vector<TaskId> copy_of(std::span<const TaskId> tasks) { return {tasks.begin(), tasks.end()}; }

/// What a device that decides by itself what it holds is promised.
class DeviceDecidesChecked final : public Checked {
 public:
  DeviceDecidesChecked(const RandomStep& step, RandomRoutes& routes) : Checked(step), routes_(routes) {}
  void starts(const Task& task) {
    Checked::starts(task);
    if (task.kind == TaskKind::kExpertRead) EXPECT_EQ(task.lane, Lane::kStoreRead);
    if (task.kind != TaskKind::kExpert) return;
    needs(TaskKind::kExpertRead, task.layer, task.expert, task);
    EXPECT_EQ(task.micro_batch, kAllMicroBatches);
    rows_[task.layer] += task.rows;
  }
  void all_ended() {
    for (size_t l = 0; l < step_.model.layers.size(); ++l) {
      const auto layer = static_cast<int32_t>(l);
      std::set<int32_t> chosen;
      int32_t rows = 0;
      for (int32_t b = 0; b < std::ssize(step_.micro_batches) && step_.model.layers[l].sparse; ++b)
        for (const RoutedExpert& r : routes_.choose(layer, b)) chosen.insert(r.expert), rows += r.rows;
      EXPECT_EQ(count(TaskKind::kExpertRead, layer), chosen.size()) << "each is asked for once, whatever is there";
      EXPECT_EQ(count(TaskKind::kExpert, layer), chosen.size());
      EXPECT_EQ(rows_[layer], rows);
    }
  }

 private:
  RandomRoutes& routes_;
  std::map<int32_t, int32_t> rows_;  ///< by layer
};

TEST(ExpertPipeline, WithoutAnOutlookTheDeviceDecidesWhatItHolds) {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomStep step(seed);
    RandomRoutes routes(seed, step.micro_batches, 3, true);
    const auto schedule = make_expert_pipeline_schedule(step.model, {.kv_share = step.random() % 2 / 1.0});
    StepMachine machine(*schedule, kVirtualLanes);
    machine.begin(step.step);
    DeviceDecidesChecked checked(step, routes);
    run_in_random_order(machine, routes, step.random, checked);
    if (HasFailure()) return;
    checked.all_ended();
  }
}

TEST(ExpertPipeline, OfTheExpertsThatAreThereTheHottestComesFirst) {
  const std::vector<MicroBatchShape> micro_batches{{1, 1}, {1, 1}};
  const std::vector<RoutedExpert> first{{2, 1}, {3, 5}, {7, 2}}, second{{2, 2}, {4, 1}};
  for (const bool hot_first : {true, false}) {
    const auto schedule =
        make_expert_pipeline_schedule({.layers = {{.sparse = true, .expert_bytes = 1}}}, {.hot_first = hot_first});
    StepMachine machine(*schedule);
    machine.begin({.tokens = 2, .micro_batches = micro_batches});
    std::vector<int32_t> order;
    while (!machine.all_ended()) {
      for (const TaskId read : copy_of(machine.start(Lane::kStoreRead))) machine.ended(read);
      const TaskId id = machine.start(Lane::kCompute).front();
      const Task task = machine[id];
      if (task.kind == TaskKind::kRouter) machine.routed(0, task.micro_batch, task.micro_batch == 0 ? first : second);
      if (task.kind == TaskKind::kExpert) order.push_back(task.expert);
      machine.ended(id);
    }
    EXPECT_EQ(order, hot_first ? (std::vector<int32_t>{3, 2, 7, 4}) : (std::vector<int32_t>{2, 3, 4, 7}));
  }
}

class CgoChecked final : public Checked {
 public:
  CgoChecked(const RandomStep& step, const CgoOptions& options) : Checked(step), options_(options) {}
  void starts(const Task& task) {
    Checked::starts(task);
    const int32_t l = task.layer, b = task.micro_batch, last = static_cast<int32_t>(step_.micro_batches.size()) - 1;
    switch (task.kind) {
      case TaskKind::kQkv:
        needs_layer(l - 1, l == 0 ? kAllMicroBatches : b, task);
        if (options_.weight_share < 1) needs(TaskKind::kWeightRead, l, 0, task);
        break;
      case TaskKind::kQkvSend: needs(TaskKind::kQkv, l, b, task); break;
      case TaskKind::kAttend: needs(TaskKind::kQkvSend, l, b, task); break;
      case TaskKind::kHiddenLoad: needs(TaskKind::kAttend, l, b, task); break;
      case TaskKind::kOutput:
        needs(TaskKind::kHiddenLoad, l, b, task);
        for (int32_t page = 0; page <= last && options_.weight_share < 1; ++page)
          needs(TaskKind::kWeightRead, l, page, task);
        break;
      case TaskKind::kRouter: needs(TaskKind::kOutput, l, b, task); break;
      case TaskKind::kLayerExperts: needs(TaskKind::kRouter, l, b, task); break;
      case TaskKind::kWeightRead:
        for (int32_t of = 0; of <= last && l > 1; ++of) needs_layer(l - 2, of, task);
        break;
      case TaskKind::kHead:
        for (int32_t of = 0; of <= last; ++of)
          needs_layer(static_cast<int32_t>(step_.model.layers.size()) - 1, of, task);
        break;
      default: break;
    }
  }
  void all_ended() const {
    for (size_t l = 0; l < step_.model.layers.size(); ++l)
      for (const TaskKind kind : {TaskKind::kQkv, TaskKind::kQkvSend, TaskKind::kAttend, TaskKind::kHiddenLoad,
                                  TaskKind::kOutput,
                                  step_.model.layers[l].sparse ? TaskKind::kCombine : TaskKind::kDenseMlp})
        EXPECT_EQ(count(kind, static_cast<int32_t>(l)), step_.micro_batches.size()) << task_name(kind);
  }

 private:
  const CgoOptions options_;
};

TEST(Cgo, NothingStartsBeforeWhatItNeedsAndEverythingEnds) {
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(seed);
    RandomStep step(seed);
    const CgoOptions options{.weight_share = step.random() % 3 / 2.0};
    RandomRoutes routes(seed, step.micro_batches, 0, false);
    const auto schedule = make_cgo_schedule(step.model, options);
    StepMachine machine(*schedule, kVirtualLanes);
    machine.begin(step.step);
    CgoChecked checked(step, options);
    run_in_random_order(machine, routes, step.random, checked);
    if (HasFailure()) return;
    checked.all_ended();
  }
}

Nanos time_of(Schedule& schedule, const StepShape& step, RandomRoutes& routes, const LaneRates& rates) {
  StepMachine machine(schedule, kVirtualLanes);
  machine.begin(step);
  const auto totals = VirtualDriver(rates).run(machine, routes, nullptr);
  EXPECT_TRUE(totals.is_ok());
  if (!totals.is_ok()) return {};
  for (const Nanos busy : totals->busy) EXPECT_LE(busy, totals->elapsed);
  return totals->elapsed;
}

/// Sums over random steps, all of them behind a link that is slower than the memory of the device.
TEST(ExpertPipeline, NoPartOfItCostsTime) {
  LaneRates rates;
  rates[static_cast<size_t>(Lane::kCompute)] = LaneRate{.flops_per_s = 60e9, .bytes_per_s = 3e9};
  rates[static_cast<size_t>(Lane::kHostToDevice)] = LaneRate{.bytes_per_s = 1e9, .interrupts = true};
  rates[static_cast<size_t>(Lane::kDeviceToHost)] = LaneRate{.bytes_per_s = 1e9};
  Nanos all{0}, serial{0}, alone{0}, cold{0}, blind{0}, in_turn{0}, late{0};
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomStep step(seed);
    const ExpertPipelineOptions whole{.dense_share = 0.5, .kv_share = 0, .expert_slots = testing::kModelExperts};
    ExpertPipelineOptions one_by_one = whole, by_micro_batch = whole, not_early = whole;
    one_by_one.overlap = by_micro_batch.by_expert = not_early.early = false;
    const auto with = [&](const ExpertPipelineOptions& options, int32_t ahead, bool coldest = false) {
      RandomRoutes routes(seed, step.micro_batches, ahead, false, coldest);
      const auto schedule = make_expert_pipeline_schedule(step.model, options, routes);
      return time_of(*schedule, step.step, routes, rates);
    };
    const Nanos here = with(whole, 2);
    EXPECT_EQ(with(whole, 2), here) << "the same input gives the same time";
    EXPECT_LE(here, with(one_by_one, 2));
    all += here, serial += with(one_by_one, 2);
    blind += with(whole, 0), cold += with(whole, 2, true);
    in_turn += with(by_micro_batch, 2), late += with(not_early, 2);
    for (const MicroBatchShape& one : step.micro_batches) {  // each micro-batch is a step of its own
      const std::vector<MicroBatchShape> only{one};
      RandomRoutes routes(seed, only, 2, false);
      const auto schedule = make_expert_pipeline_schedule(step.model, whole, routes);
      alone += time_of(*schedule, {one.tokens, one.context, step.step.logit_rows, 0, only}, routes, rates);
    }
  }
  EXPECT_GT(serial.count(), 1.2 * all.count());
  EXPECT_GT(alone.count(), 1.2 * all.count());
  EXPECT_GT(in_turn.count(), 1.1 * all.count());
  EXPECT_GT(late.count(), 1.004 * all.count());
  EXPECT_GT(blind.count(), 1.005 * all.count());
  EXPECT_GT(cold.count(), 1.005 * all.count());
}

/// The example of Klotski's figure 7: hot experts are there, the others arrive while those compute.
TEST(ExpertPipeline, HotExpertsRunWhileOthersArrive) {
  const std::vector<MicroBatchShape> micro_batches{{1, 1}, {1, 1}};
  struct Routes final : VirtualRouter, ExpertOutlook {
    std::span<const RoutedExpert> choose(int32_t, int32_t micro_batch) override {
      return micro_batch == 0 ? first : second;
    }
    bool is_resident(int32_t, int32_t expert) const override { return expert == 7; }
    std::span<const int32_t> foreseen(int32_t) override { return hot; }
    std::vector<RoutedExpert> first{{2, 5}, {3, 1}, {7, 1}}, second{{2, 1}, {4, 3}};
    std::vector<int32_t> hot{2};
  } routes;
  const ModelShape model{.layers = {{.sparse = true,
                                     .attention_weight_bytes = 15,
                                     .expert_parameters = 1,
                                     .expert_bytes = 20}}};
  const auto schedule = make_expert_pipeline_schedule(model, {.expert_slots = 3}, routes);
  StepMachine machine(*schedule, kVirtualLanes);
  machine.begin({.tokens = 2, .micro_batches = micro_batches});
  LaneRates rates;
  rates[static_cast<size_t>(Lane::kCompute)] = rates[static_cast<size_t>(Lane::kHostToDevice)] =
      LaneRate{.bytes_per_s = 1e9};
  RecordedTimeline timeline;
  ASSERT_TRUE(VirtualDriver(rates).run(machine, routes, &timeline).is_ok());
  std::vector<std::string> order;
  for (const Slice& s : timeline.slices())
    order.push_back(std::string(task_name(s.task.kind)) +
                    (s.task.expert < 0 ? "" : " " + std::to_string(s.task.expert)) + " at " +
                    std::to_string(s.begin.count()));
  EXPECT_EQ(order, (std::vector<std::string>{"attention at 0", "read expert 2 at 0", "attention at 15",
                                             "read expert 3 at 20", "expert 2 at 30", "read expert 4 at 40",
                                             "expert 3 at 50", "expert 4 at 70", "expert 7 at 90"}));
}

TEST(ThroughputSchedules, AModelWithoutLayersIsItsEnds) {
  const std::vector<MicroBatchShape> none;
  RandomRoutes routes(1, none, 0, false);
  const std::unique_ptr<Schedule> schedules[] = {make_expert_pipeline_schedule({}, {}, routes),
                                                 make_cgo_schedule({}, {})};
  for (const auto& schedule : schedules) {
    TaskGraph graph;
    schedule->begin({.tokens = 1, .logit_rows = 1}, graph);
    ASSERT_EQ(graph.size(), 2);
    EXPECT_EQ(graph[1].kind, TaskKind::kHead);
  }
}

TEST(ThroughputSchedules, StepsAllocateNothingOnceTheyAreWarm) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomStep step(seed);
    PipelineSetup setup(step);
    const LaneRates rates = step.rates();
    const std::unique_ptr<Schedule> schedules[] = {
        make_expert_pipeline_schedule(step.model, setup.options, setup.routes),
        make_cgo_schedule(step.model, {})};
    for (const auto& schedule : schedules) {
      StepMachine machine(*schedule, kVirtualLanes);
      VirtualDriver driver(rates);
      const auto run = [&] {
        machine.begin(step.step);
        return driver.run(machine, setup.routes, nullptr).is_ok();
      };
      ASSERT_TRUE(run());
      const int64_t before = test::allocations.load();
      const bool ran = run();
      EXPECT_EQ(test::allocations.load(), before);
      EXPECT_TRUE(ran);
    }
  }
}

TEST(ThroughputSchedules, RunnersOfTheLayerwiseScheduleRefuseTheirTasksByName) {
  RandomStep step(1);
  RandomRoutes routes(1, step.micro_batches, 2, false);
  const auto schedule = make_expert_pipeline_schedule(step.model, {.dense_share = 0}, routes);
  TaskGraph graph;
  schedule->begin(step.step, graph);
  const Task weights = graph[1];
  EXPECT_FALSE(is_layerwise(weights));
  EXPECT_TRUE(is_layerwise(graph[0]));
  EXPECT_FALSE(is_layerwise({.lane = Lane::kHostToDevice, .kind = TaskKind::kExpertRead}));
  EXPECT_TRUE(is_layerwise({.lane = Lane::kStoreRead, .kind = TaskKind::kExpertRead}));
  EXPECT_EQ(cannot_run("replay", weights).message(),
            "replay cannot run the task 'read weights' on the lane 'host to device': use the layerwise schedule");
}

}  // namespace
}  // namespace moestro::lanes
