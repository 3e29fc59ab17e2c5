#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "common/lanes/executor.h"
#include "common/lanes/schedule.h"

namespace moestro::lanes {
namespace {

constexpr int kExperts = 8;

ModelShape two_sparse_layers_and_a_dense_one() {
  LayerShape sparse{.sparse = true,
                    .attention_weight_bytes = 1e6,
                    .kv_bytes_per_token = 100,
                    .attention_parameters = 5e5,
                    .router_parameters = 1e3,
                    .router_weight_bytes = 4e3,
                    .shared_parameters = 1e5,
                    .shared_weight_bytes = 2e5,
                    .expert_parameters = 1e6,
                    .expert_bytes = 2e6};
  LayerShape dense = sparse;
  dense.sparse = false;
  dense.dense_parameters = 1e6, dense.dense_weight_bytes = 2e6;
  return {.layers = {sparse, dense, sparse},
          .embed_bytes_per_token = 100,
          .head_parameters = 1e6,
          .head_weight_bytes = 2e6};
}

/// Routes to some experts of every layer; those that are not resident arrive in random order. Records what it saw.
class FakeRunner final : public TaskRunner {
 public:
  FakeRunner(Schedule& schedule, TaskGraph& graph, uint32_t seed) : schedule_(schedule), graph_(graph), random_(seed) {}

  Status run(TaskId id, const Task& task) override {
    ran.push_back(task);
    if (task.kind == TaskKind::kExpert) {
      EXPECT_TRUE(present_[static_cast<size_t>(task.expert)]) << "an expert ran before it was there";
      present_[static_cast<size_t>(task.expert)] = false;
      --computed_before_wait_;
    }
    if (task.kind == TaskKind::kCombine)
      EXPECT_EQ(computed_before_wait_, 0) << "rows are summed when all experts have run";
    if (task.kind == TaskKind::kRouter) {
      computed_before_wait_ = static_cast<int>(routed_.size());
      schedule_.expand(task.layer, routed_, graph_);
    }
    if (fail_at == id) return internal_error("on purpose");
    return Status::ok();
  }
  Result<bool> start(TaskId id, const Task& task) override {
    const bool resident = task.expert % 2 == 0;
    if (resident) present_[static_cast<size_t>(task.expert)] = true;
    else asked_.push_back({id, task.expert});
    return resident;
  }
  Status flush() override {
    ++flushes;
    return Status::ok();
  }
  Result<TaskId> wait_any() override {
    for (const bool p : present_) EXPECT_FALSE(p) << "the executor waits while experts that are present have not run";
    const size_t i = random_() % asked_.size();
    const auto [id, expert] = asked_[i];
    asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(i));
    present_[static_cast<size_t>(expert)] = true;
    return id;
  }

  std::vector<Task> ran;
  int flushes = 0;
  TaskId fail_at = -1;

 private:
  Schedule& schedule_;
  TaskGraph& graph_;
  std::mt19937 random_;
  std::vector<RoutedExpert> routed_ = {{0, 2}, {1, 1}, {3, 4}, {4, 1}, {7, 2}};
  bool present_[kExperts] = {};
  std::vector<std::pair<TaskId, int32_t>> asked_;
  int computed_before_wait_ = 0;
};

struct StepSetup {
  std::unique_ptr<Schedule> schedule = make_layerwise_schedule(two_sparse_layers_and_a_dense_one());
  TaskGraph graph;
  FakeRunner runner;
  explicit StepSetup(uint32_t seed) : runner(*schedule, graph, seed) { schedule->begin({4, 40, 2}, graph); }
};

TEST(TaskGraph, ReadyWhenAllItWaitsForHasEnded) {
  TaskGraph graph;
  const TaskId a = graph.add({}), b = graph.add({});
  const TaskId c = graph.add({}, std::array{a, b});
  std::vector<TaskId> ready;
  graph.take_ready(ready);
  EXPECT_EQ(ready, (std::vector<TaskId>{a, b}));
  graph.end(b);
  graph.take_ready(ready);
  EXPECT_TRUE(ready.empty());
  const TaskId late = graph.add({}, std::array{b});  // what it waits for has ended already
  graph.add_edge(late, c);
  graph.end(a);
  graph.take_ready(ready);
  EXPECT_EQ(ready, std::vector<TaskId>{late});
  graph.end(late);
  graph.take_ready(ready);
  EXPECT_EQ(ready, std::vector<TaskId>{c});
  graph.end(c);
  EXPECT_TRUE(graph.all_ended());
}

TEST(LayerwiseSchedule, HiddenStatesNeedTheHeadAndNoneOfItsWeights) {
  const auto schedule =
      make_layerwise_schedule({.layers = {LayerShape{}}, .head_parameters = 100, .head_weight_bytes = 200});
  const auto head_of = [&](const StepShape& step) {
    TaskGraph graph;
    schedule->begin(step, graph);
    return graph[graph.size() - 1];
  };
  EXPECT_NE(head_of({.tokens = 3}).kind, TaskKind::kHead);
  const Task logits = head_of({.tokens = 3, .logit_rows = 1, .summed = 1});
  const Task states = head_of({.tokens = 3, .summed = 1});
  EXPECT_EQ(logits.kind, TaskKind::kHead);
  EXPECT_EQ(logits.cost.bytes, 200);
  EXPECT_EQ(states.kind, TaskKind::kHead);
  EXPECT_EQ(states.cost.bytes, 0);
  EXPECT_EQ(states.cost.flops, 0);
}

TEST(CpuExecutor, RunsWhatIsPresentFirstAndTheRestAsItArrives) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    StepSetup s(seed);
    const SteadyClock clock;
    RecordedTimeline timeline;
    const auto totals = CpuExecutor(clock).execute(s.graph, s.runner, &timeline);
    ASSERT_TRUE(totals.is_ok());
    EXPECT_TRUE(s.graph.all_ended());
    EXPECT_EQ(s.runner.flushes, 2) << "one request for a layer's missing experts";
    std::vector<int32_t> order;
    for (const Task& t : s.runner.ran)
      if (t.layer == 0 && t.kind == TaskKind::kExpert) order.push_back(t.expert);
    ASSERT_EQ(order.size(), 5u);
    EXPECT_EQ((std::vector<int32_t>{order[0], order[1]}), (std::vector<int32_t>{0, 4}));
    EXPECT_EQ(s.runner.ran.front().kind, TaskKind::kEmbed);
    EXPECT_EQ(s.runner.ran.back().kind, TaskKind::kHead);
    size_t reads = 0;
    for (const Slice& slice : timeline.slices()) {
      EXPECT_LE(slice.begin, slice.end);
      reads += slice.task.lane == Lane::kStoreRead;
    }
    EXPECT_EQ(reads, 6u) << "three missing experts in each of two layers";
  }
}

TEST(CpuExecutor, EndsWithTheRunnersError) {
  StepSetup s(1);
  s.runner.fail_at = 2;
  const SteadyClock clock;
  const auto totals = CpuExecutor(clock).execute(s.graph, s.runner, nullptr);
  ASSERT_FALSE(totals.is_ok());
  EXPECT_EQ(totals.status().message(), "on purpose");
}

/// Forecasts: routers expand, nothing else happens; only experts with an even id are resident.
class ForecastRunner final : public TaskRunner {
 public:
  ForecastRunner(Schedule& schedule, TaskGraph& graph) : schedule_(schedule), graph_(graph) {}
  Status run(TaskId, const Task& task) override {
    const std::array<RoutedExpert, 3> routed = {{{1, 1}, {2, 1}, {5, 2}}};
    if (task.kind == TaskKind::kRouter) schedule_.expand(task.layer, routed, graph_);
    return Status::ok();
  }
  Result<bool> start(TaskId, const Task& task) override { return task.expert % 2 == 0; }
  Status flush() override { return Status::ok(); }
  Result<TaskId> wait_any() override { return internal_error("a forecast does not wait"); }

 private:
  Schedule& schedule_;
  TaskGraph& graph_;
};

CostModel costs() {
  CostModel c;
  c[Lane::kCompute] = {Nanos(1000), 1e11, 1e10};
  c[Lane::kStoreRead] = {Nanos(50000), 0, 2e9};
  return c;
}

std::vector<Slice> forecast(ExecutionTotals* totals) {
  const auto schedule = make_layerwise_schedule(two_sparse_layers_and_a_dense_one());
  TaskGraph graph;
  schedule->begin({4, 40, 2}, graph);
  ForecastRunner runner(*schedule, graph);
  RecordedTimeline timeline;
  const auto result = VirtualExecutor(costs()).execute(graph, runner, &timeline);
  EXPECT_TRUE(result.is_ok());
  *totals = *result;
  return timeline.slices();
}

TEST(VirtualExecutor, ForecastsTheSameEveryTime) {
  ExecutionTotals first_totals, second_totals;
  const auto first = forecast(&first_totals), second = forecast(&second_totals);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].id, second[i].id);
    EXPECT_EQ(first[i].begin, second[i].begin);
    EXPECT_EQ(first[i].end, second[i].end);
  }
  EXPECT_EQ(first_totals.elapsed, second_totals.elapsed);
}

TEST(VirtualExecutor, KeepsLanesApartAndOrder) {
  ExecutionTotals totals;
  const auto slices = forecast(&totals);
  Nanos lane_end[kLaneCount] = {}, read_end[3][kExperts] = {};
  for (const Slice& s : slices) {
    Nanos& end = lane_end[static_cast<int>(s.task.lane)];
    EXPECT_GE(s.begin, end) << "a lane does one task at a time";
    end = s.end;
    if (s.task.kind == TaskKind::kExpertRead) read_end[s.task.layer][s.task.expert] = s.end;
    if (s.task.kind == TaskKind::kExpert)
      EXPECT_GE(s.begin, read_end[s.task.layer][s.task.expert]) << "an expert runs after its read";
  }
  EXPECT_EQ(totals.elapsed, std::max(lane_end[0], lane_end[1]));
  EXPECT_EQ(totals.elapsed, totals.busy[0] + totals.stalled) << "the compute lane works or waits";
  // Two reads a layer of 2 MB at 2 GB/s, 50 us each, hide behind little: the forecast must show the stall.
  EXPECT_GT(totals.stalled, Nanos(3'000'000));
}

TEST(CostModel, TheLargerOfArithmeticAndTraffic) {
  CostModel c = costs();
  EXPECT_EQ(c.duration({.cost = {2e11, 1}}), Nanos(2'000'001'000));
  EXPECT_EQ(c.duration({.cost = {1, 1e10}}), Nanos(1'000'001'000));
  EXPECT_EQ(c.duration({.lane = Lane::kDeviceToHost, .cost = {1, 1e10}}), Nanos(0)) << "no rate: free";
}

TEST(ChromeTrace, IsReadableWhileItIsWrittenAndStrictAtTheEnd) {
  const auto path = std::filesystem::temp_directory_path() / ("moestro-trace-" + std::to_string(::getpid()) + ".json");
  auto trace = ChromeTrace::create(path, "worker \"0\"");
  ASSERT_TRUE(trace.is_ok());
  const auto text = [&] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  for (uint64_t step = 1; step <= 3; ++step) {
    (*trace)->begin_step(step);
    (*trace)->slice({{Lane::kStoreRead, TaskKind::kExpertRead, 1, 7, {}}, 4, Nanos(1000), Nanos(3500)});
    (*trace)->slice({{Lane::kCompute, TaskKind::kExpert, 1, 7, {}}, 5, Nanos(3500), Nanos(4000)});
    (*trace)->end_step();
    std::string so_far = text();  // as a killed process leaves it: every line whole, only the end is missing
    ASSERT_TRUE(so_far.ends_with("},\n"));
    so_far.resize(so_far.size() - 2);
    const auto json = nlohmann::json::parse(so_far + "]", nullptr, false);
    ASSERT_FALSE(json.is_discarded());
    const auto slices = std::count_if(json.begin(), json.end(), [](const auto& e) { return e["ph"] == "X"; });
    EXPECT_EQ(slices, static_cast<std::ptrdiff_t>(2 * step));
  }
  trace->reset();
  const auto json = nlohmann::json::parse(text(), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json[0]["args"]["name"], "worker \"0\"");
  const auto is_slice = [](const auto& e) { return e["ph"] == "X"; };
  const auto slice = std::find_if(json.begin(), json.end(), is_slice);
  EXPECT_EQ((*slice)["name"], "read expert");
  EXPECT_DOUBLE_EQ((*slice)["ts"], 1.0);
  EXPECT_DOUBLE_EQ((*slice)["dur"], 2.5);
  std::filesystem::remove(path);
  EXPECT_FALSE(ChromeTrace::create("/nonexistent/dir/t.json", "x").is_ok());
}

}  // namespace
}  // namespace moestro::lanes
