#pragma once
// A scheduler, workers whose steps take time, and clients, on a virtual clock: what happens depends on seeds and costs
// alone.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {

/// What a step costs: `step`, and `token` for each of its tokens.
struct StepCost {
  Nanos step = std::chrono::milliseconds(2), token = std::chrono::microseconds(100);
  Nanos of(int64_t tokens) const { return step + token * tokens; }
};

/// What the client of a sequence has seen.
struct Told {
  SequenceRequest request;
  Nanos came{0};
  std::optional<Nanos> first_token, ended;
  Nanos last_token{0}, gap_max{0};  ///< between two tokens
  std::vector<TokenId> sampled;
  std::optional<FinishReason> finished;
  std::optional<Failed> failed;
  bool cancelled = false;
};

class VirtualCluster {
 public:
  /// kTrue: what workers compute follows from what lies in their caches, and is checked. kPlain: always the same token,
  /// for long runs.
  enum class Model { kTrue, kPlain };
  explicit VirtualCluster(SchedulerOptions options, StepCost cost = {}, Model model = Model::kTrue)
      : cost_(cost), model_(model), scheduler_(std::move(options)) {}

  void at(Nanos when, std::function<void()> what) { events_.emplace(when, std::move(what)); }
  void after(Nanos pause, std::function<void()> what) { at(now_ + pause, std::move(what)); }
  /// Until nothing is left that happens, or until `end`.
  void run(Nanos end = Nanos::max());

  void join(WorkerLimits limits);
  void kill(WorkerId worker);
  /// A worker dies at the end of a step in which one of these was.
  std::set<uint64_t> deadly;
  /// A worker dies of encoding one of these, for whichever sequence.
  std::set<Source> deadly_sources;
  /// Those that die are back after so long.
  Nanos back_after = std::chrono::milliseconds(500);

  void submit(SequenceRequest request);
  /// `sampled`: as of Cancelled.
  void cancel(uint64_t id, int64_t sampled = -1);
  /// Called when a sequence has ended, however.
  std::function<void(const Told&)> on_end;

  Nanos now() const { return now_; }
  std::map<uint64_t, Told>& told() { return told_; }
  Scheduler& scheduler() { return scheduler_; }
  std::vector<WorkerId> workers() const;
  const StepCost& cost() const { return cost_; }
  /// Tokens computed, by what a sequence was submitted as: `background`, flow.
  std::map<std::pair<bool, std::string>, int64_t> computed;
  std::map<WorkerId, int64_t> steps;
  size_t deaths = 0;
  size_t overtaken = 0;  ///< plans that ran between two layers of another
  Nanos longest_stretch{0};  ///< from the beginning of a plan that was overtaken to its end
  /// Of a worker with WorkerLimits::overtaking_tokens_max.
  static constexpr int kLayers = 8;

  /// That everybody has got what the model says, to the end, or a reason.
  void expect_right_answers();

 private:
  struct Worker {
    WorkerLimits limits;
    std::unique_ptr<SimulatedWorker> device;
    std::deque<Plan> plans;
    bool busy = false;
    Plan at_hand = {};  ///< between its layers, where plans may overtake
    bool begun = false; ///< the device has begun it
    int layers_left = 0;
    bool gave_way = false;  ///< since its last layer
    Nanos since{0};
  };
  void go_on(WorkerId id);
  void run_overtaking(WorkerId id, Worker& worker);
  PlanOutcome finish(WorkerId id, Worker& worker, const Plan& plan);
  bool dies_of(WorkerId id, const Plan& plan);
  int64_t count(WorkerId id, const Plan& plan);
  void begin_step(WorkerId id, Worker& worker);
  void end_step(WorkerId id);
  void feed(Event event);
  void hear(Progress& progress);
  void end(Told& told);

  PlanOutcome compute(Worker& worker, const Plan& plan);

  const StepCost cost_;
  const Model model_;
  uint64_t events_fed_ = 0;
  Nanos now_{0};
  std::multimap<Nanos, std::function<void()>> events_;
  Scheduler scheduler_;
  std::map<WorkerId, Worker> workers_;
  std::map<uint64_t, Told> told_;
  std::map<uint64_t, std::vector<TokenId>> texts_;  ///< what sequences must say, as far as it was asked for
  uint32_t next_worker_ = 1;
};

}  // namespace moestro::orchestrator
