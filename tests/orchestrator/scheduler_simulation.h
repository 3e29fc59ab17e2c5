#pragma once
// A scheduler against simulated workers, with a seeded choice of what happens next. After every event the blocks'
// bookkeeping is checked; with every plan, that whatever the planned tokens read is their own sequence's.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "orchestrator/scheduler/scheduler.h"

namespace moestro::orchestrator {

inline constexpr TokenId kEos = 0;
inline const std::string kBrokeDown = "the plan broke down";

using Source = std::shared_ptr<const std::vector<TokenId>>;

/// What the simulated model says after `tokens`, of a target after those of its source: a function of nothing else, as
/// greedy decoding is.
TokenId next_token(const std::vector<TokenId>& tokens, const Source& source = nullptr);
float score_of(TokenId target, int64_t position);
/// The final hidden state of the last of `tokens`: a function of all of them. Sums of whole numbers are exact.
std::vector<double> state_of(const std::vector<TokenId>& tokens);
std::vector<double> expected_embedding(const SequenceRequest& request);
std::vector<TokenId> expected_output(const SequenceRequest& request);

/// A worker that keeps what a real one keeps: block tables and, per slot of its cache, what was written there. As keys
/// and values do, a slot's contents depend on its token and on what its sequence had before it.
class SimulatedWorker {
 public:
  /// Gives the first tokens of a sequence, prompt and what must be sampled, as many as are asked for.
  using TextOf = std::function<std::vector<TokenId>(SequenceId, size_t)>;
  using SourceOf = std::function<Source(SequenceId)>;

  SimulatedWorker(WorkerLimits limits, TextOf text_of, SourceOf source_of);
  /// Computes a plan and checks that it is one that this worker can compute. A plan whose parent failed, or was not the
  /// last, fails.
  PlanOutcome compute(const Plan& plan);
  /// The same in two parts, between which plans that overtake it are computed. False: its parent failed.
  bool begin(const Plan& plan);
  /// `left`: sequences of the plan that have left, so that what they read may be anybody's.
  PlanOutcome finish(const Plan& plan, const std::set<uint64_t>& left = {});
  void release(const std::vector<ReleasedSequence>& released);
  bool knows_nobody() const { return tables_.empty(); }
  /// Breaks down amid the plan: what it was to write is garbage.
  PlanOutcome break_down(const Plan& plan);
  /// One sequence of the plan fails, and leaves garbage.
  PlanOutcome compute_all_but(size_t broken, const Plan& plan);

 private:
  struct Slot {
    TokenId token = -1;
    uint64_t chain = 0;  ///< over the sequence's tokens up to this one, as the slots before it tell
  };
  struct State {
    int64_t tokens = -1;  ///< of its sequence, before what comes next
    uint64_t chain = 0;   ///< over those
  };
  struct Said {
    PlanId plan;
    TokenId token = -1;
  };
  struct Memory {
    std::vector<uint32_t> blocks;
    int64_t tokens = 0;
  };
  /// A sequence's part with its tokens as they are; `runs`: there is something to compute.
  struct Work {
    const PlannedSequence* planned = nullptr;
    std::vector<TokenId> tokens;
    bool runs = false;
    Status error;
  };
  void copy_blocks(const Plan& plan);
  void take_in(const Plan& plan);
  void take_history(const Work& work);
  Work resolve(const Plan& plan, const PlannedSequence& s);
  bool sees(int64_t position, int64_t query) const;
  void check_writes(const std::vector<Work>& all);
  void check_reads(const Work& work);
  void spoil(const PlannedSequence& s);
  SequenceOutcome compute(PlanId plan, const Work& work);
  Slot& slot(SequenceId id, int64_t position);
  Slot& memory_slot(SequenceId id, int64_t position);
  SequenceOutcome encode(const PlannedSequence& s);
  uint64_t chain_of_memory(SequenceId id);

  WorkerLimits limits_;
  TextOf text_of_;
  SourceOf source_of_;
  PlanId done_;  ///< the plan before, unless it failed as a whole
  std::vector<Slot> cache_;
  std::vector<State> states_;
  std::map<uint64_t, Said> said_;
  std::map<uint64_t, std::vector<uint32_t>> tables_;
  std::map<uint64_t, Memory> memories_;
  std::map<uint64_t, std::vector<TokenId>> histories_;  ///< what penalties see
};

struct Heard {
  SequenceRequest request;
  std::vector<TokenId> sampled;
  std::vector<float> scores;
  int64_t cached = 0;
  std::vector<double> embedding;
  std::optional<FinishReason> finished;
  std::optional<Status> failed;
  bool cancelled = false;
  std::set<uint64_t> versions;  ///< of the workers that computed what was given out
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed, int64_t step_tokens = 24, bool prefix_cache = true, size_t steps_in_flight = 1);

  uint64_t roll(uint64_t sides) { return random_() % sides; }

  void submit(SequenceRequest request);
  SequenceRequest random_request(uint64_t id);
  /// One that begins as one of a few texts or one of the sequences before it does.
  SequenceRequest related_request(uint64_t id);
  /// A target of a source of its own, or of that of the request before.
  SequenceRequest request_with_source(uint64_t id);
  void join(WorkerLimits limits, uint64_t version = 0);
  void kill_one();
  void kill(WorkerId worker);
  /// From now on workers that are renewed come back with it.
  void serve(uint64_t version);
  /// One that was renewed is back; false if there is none.
  bool bring_back_one();
  size_t away() const { return renewed_.size(); }
  std::map<WorkerId, uint64_t>& versions() { return versions_; }
  void cancel(uint64_t id);
  /// A worker computes its next plan.
  void compute_one();
  /// One of the plans that are out fails, for one of its sequences or as a whole.
  void break_one();
  void finish_all() {
    while (!plans_.empty()) compute_one();
  }
  /// From here on a result may be heard only when the next plan is computed, too.
  void let_results_be_late() { late_ = true; }
  bool has_plans() const { return !plans_.empty(); }
  size_t workers() const { return workers_.size(); }
  std::map<uint64_t, Heard>& heard() { return heard_; }
  Scheduler& scheduler() { return scheduler_; }
  std::vector<SendPlan>& plans() { return plans_; }
  /// Tokens that workers have computed.
  uint64_t computed_tokens() const { return computed_tokens_; }

  void feed(Event event);
  /// Every worker has heard which sequences it may forget.
  bool all_is_released() const;
  void expect_right_answers();

 private:
  SendPlan take_plan();
  void answer(WorkerId worker, PlanOutcome outcome);
  void check_plan(const SendPlan& send);
  std::vector<TokenId> text(SequenceId id, size_t length);

  std::mt19937_64 random_;
  const size_t steps_in_flight_;
  Scheduler scheduler_;
  std::map<WorkerId, std::unique_ptr<SimulatedWorker>> workers_;
  std::map<WorkerId, uint64_t> versions_;  ///< of those, and of those that were
  std::map<WorkerId, WorkerLimits> limits_;
  std::vector<WorkerLimits> renewed_;      ///< gone to attach anew
  uint64_t served_ = 0;
  uint64_t answered_by_ = 0;               ///< the version of the worker that is heard just now
  std::vector<SendPlan> plans_;  ///< not computed yet; a worker's in their order
  std::map<WorkerId, std::deque<PlanOutcome>> results_;  ///< not heard of yet
  std::map<uint64_t, Heard> heard_;
  std::map<uint64_t, std::vector<TokenId>> texts_;
  uint32_t next_worker_ = 1;
  uint64_t computed_tokens_ = 0;
  bool late_ = false;
};

WorkerLimits small_worker();
SequenceRequest request(uint64_t id, size_t prompt, int64_t tokens);

}  // namespace moestro::orchestrator
