#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "common/lanes/step_driver.h"
#include "tests/lanes/recorded_timeline.h"

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
  FakeRunner(StepMachine& machine, uint32_t seed) : machine_(machine), random_(seed) {}

  Status start(Lane lane, std::span<const TaskId> tasks, std::vector<TaskId>& ended) override {
    for (const TaskId id : tasks) {
      const Task task = machine_[id];
      if (lane == Lane::kStoreRead && !read(id, task)) continue;
      if (lane == Lane::kCompute) MOESTRO_RETURN_IF_ERROR(run(id, task));
      ended.push_back(id);
    }
    return Status::ok();
  }
  Status flush() override {
    ++flushes;
    return Status::ok();
  }
  Status wait_any(std::vector<TaskId>& ended) override {
    for (const bool p : present_) EXPECT_FALSE(p) << "the driver waits while experts that are present have not run";
    const size_t i = random_() % asked_.size();
    const auto [id, expert] = asked_[i];
    asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(i));
    present_[static_cast<size_t>(expert)] = true;
    ended.push_back(id);
    return Status::ok();
  }

  std::vector<Task> ran;
  int flushes = 0;
  TaskId fail_at = -1;

 private:
  Status run(TaskId id, const Task& task) {
    ran.push_back(task);
    if (task.kind == TaskKind::kExpert) {
      EXPECT_TRUE(present_[static_cast<size_t>(task.expert)]) << "an expert ran before it was there";
      present_[static_cast<size_t>(task.expert)] = false;
      --to_compute_;
    }
    if (task.kind == TaskKind::kCombine) EXPECT_EQ(to_compute_, 0) << "rows are summed when all experts have run";
    if (task.kind == TaskKind::kRouter) {
      to_compute_ = static_cast<int>(routed_.size());
      machine_.routed(task.layer, task.micro_batch, routed_);
    }
    if (fail_at == id) return internal_error("on purpose");
    return Status::ok();
  }
  bool read(TaskId id, const Task& task) {
    const bool resident = task.expert % 2 == 0;
    if (resident) present_[static_cast<size_t>(task.expert)] = true;
    else asked_.push_back({id, task.expert});
    return resident;
  }

  StepMachine& machine_;
  std::mt19937 random_;
  std::vector<RoutedExpert> routed_ = {{0, 2}, {1, 1}, {3, 4}, {4, 1}, {7, 2}};
  bool present_[kExperts] = {};
  std::vector<std::pair<TaskId, int32_t>> asked_;
  int to_compute_ = 0;
};

struct StepSetup {
  std::unique_ptr<Schedule> schedule = make_layerwise_schedule(two_sparse_layers_and_a_dense_one());
  StepMachine machine{*schedule};
  FakeRunner runner;
  explicit StepSetup(uint32_t seed) : runner(machine, seed) { machine.begin({4, 40, 2}); }
};

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

TEST(LayerwiseSchedule, MicroBatchesTakeTurnsAndShareExperts) {
  const auto schedule = make_layerwise_schedule({.layers = {{.sparse = true, .kv_bytes_per_token = 10}}});
  StepMachine machine(*schedule);
  const std::vector<MicroBatchShape> micro_batches{{2, 12, 10}, {3, 30, 27}};
  machine.begin({.tokens = 5, .context = 42, .micro_batches = micro_batches});
  const std::vector<RoutedExpert> chosen[] = {{{1, 2}, {4, 2}}, {{0, 1}, {4, 3}}};
  std::vector<std::string> order;
  double context_bytes = 0;
  while (!machine.all_ended()) {
    for (const Lane lane : {Lane::kStoreRead, Lane::kCompute}) {
      const auto started = machine.start(lane);
      for (const TaskId id : std::vector<TaskId>(started.begin(), started.end())) {
        const Task task = machine[id];
        order.push_back(std::string(task_name(task.kind)));
        if (task.micro_batch != kAllMicroBatches) order.back() += " of " + std::to_string(task.micro_batch);
        if (task.expert >= 0) order.back() += " " + std::to_string(task.expert) + " x" + std::to_string(task.rows);
        if (task.kind == TaskKind::kAttention) context_bytes += task.cost.bytes;
        if (task.kind == TaskKind::kRouter) machine.routed(0, task.micro_batch, chosen[task.micro_batch]);
        machine.ended(id);
      }
    }
  }
  EXPECT_EQ(order, (std::vector<std::string>{"embed", "attention of 0", "router of 0", "read expert 1 x2",
                                             "read expert 4 x2", "attention of 1", "router of 1", "read expert 0 x1",
                                             "expert 0 x1", "expert 1 x2", "expert 4 x5", "combine"}));
  EXPECT_EQ(context_bytes, 420);
}

TEST(StepDriver, RunsWhatIsPresentFirstAndTheRestAsItArrives) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    StepSetup s(seed);
    const SteadyClock clock;
    RecordedTimeline timeline;
    const auto totals = StepDriver(clock).run(s.machine, s.runner, &timeline);
    ASSERT_TRUE(totals.is_ok());
    EXPECT_TRUE(s.machine.all_ended());
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

TEST(StepDriver, StallsAreItsWaits) {
  StepSetup s(1);
  const SteadyClock clock;
  RecordedTimeline timeline;
  const auto totals = StepDriver(clock).run(s.machine, s.runner, &timeline);
  ASSERT_TRUE(totals.is_ok());
  Nanos stalled{0};
  for (const Stall& stall : timeline.stalls()) {
    stalled += stall.end - stall.begin;
    EXPECT_EQ(stall.expert % 2, 1) << "the others are resident";
    EXPECT_EQ(stall.why.cause, LateCause::kNotForeseen);
    EXPECT_EQ(stall.why.from, Lateness::From::kDrive);
  }
  EXPECT_EQ(timeline.stalls().size(), 6u);
  EXPECT_EQ(stalled, totals->stalled);
  EXPECT_EQ(totals->kv_stalled, Nanos(0));
}

TEST(StepDriver, EndsWithTheRunnersErrorAndTheNextStepBeginsAnew) {
  StepSetup s(1);
  s.runner.fail_at = 2;
  const SteadyClock clock;
  StepDriver driver(clock);
  const auto totals = driver.run(s.machine, s.runner, nullptr);
  ASSERT_FALSE(totals.is_ok());
  EXPECT_EQ(totals.status().message(), "on purpose");
  FakeRunner next(s.machine, 2);
  s.machine.begin({4, 40, 2});
  EXPECT_TRUE(driver.run(s.machine, next, nullptr).is_ok());
  EXPECT_TRUE(s.machine.all_ended());
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
    (*trace)->slice({{.lane = Lane::kStoreRead, .kind = TaskKind::kExpertRead, .layer = 1, .expert = 7},
                     4,
                     Nanos(1000),
                     Nanos(3500)});
    (*trace)->slice({{.kind = TaskKind::kExpert, .layer = 1, .expert = 7}, 5, Nanos(3500), Nanos(4000)});
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
  ASSERT_TRUE(ChromeTrace::create(path, "its successor").is_ok());
  std::ifstream old(path.string() + ".old");
  EXPECT_EQ(nlohmann::json::parse(old, nullptr, false), json);
  std::filesystem::remove(path);
  std::filesystem::remove(path.string() + ".old");
  EXPECT_FALSE(ChromeTrace::create("/nonexistent/dir/t.json", "x").is_ok());
}

TEST(ChromeTrace, AnArrowLeadsFromAReadToItsUseAndNowhereElse) {
  const auto path = std::filesystem::temp_directory_path() / ("moestro-arrow-" + std::to_string(::getpid()) + ".json");
  {
    auto trace = ChromeTrace::create(path, "w");
    ASSERT_TRUE(trace.is_ok());
    for (uint64_t step = 1; step <= 2; ++step) {
      (*trace)->begin_step(step);
      (*trace)->slice({{Lane::kStoreRead, TaskKind::kExpertRead, 1, 7}, 4, Nanos(1000), Nanos(3500)});
      (*trace)->stall({1, 7, Nanos(2000), Nanos(3500)});
      (*trace)->slice({{Lane::kCompute, TaskKind::kExpert, 1, 7}, 5, Nanos(3500), Nanos(4000)});
      (*trace)->slice({{Lane::kCompute, TaskKind::kExpert, 1, 8}, 6, Nanos(4000), Nanos(4500)});
      (*trace)->end_step();
    }
  }
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  std::vector<std::string> from, to;
  for (const auto& e : json) {
    if (e["ph"] == "s") from.push_back(e["id"]);
    if (e["ph"] == "f") to.push_back(e["id"]);
    if (e["name"] == "stall")
      EXPECT_EQ(e["args"], (nlohmann::json{{"plan", e["args"]["plan"]},
                                           {"layer", 1},
                                           {"expert", 7},
                                           {"tier", "drive"},
                                           {"cause", "not foreseen"}}));
  }
  ASSERT_EQ(from.size(), 2u);
  EXPECT_EQ(from, to) << "expert 8 was there, and no arrow leads to it";
  EXPECT_NE(from[0], from[1]);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace moestro::lanes
