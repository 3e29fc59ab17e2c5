#pragma once
// A scheduler against simulated workers, with a seeded choice of what happens next. After every event the blocks' bookkeeping is checked;
// with every plan, that whatever the planned tokens read is their own sequence's.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "orchestrator/scheduler/scheduler.h"

namespace moestro::orchestrator {

inline constexpr TokenId kEos = 0;
inline const std::string kBrokeDown = "the plan broke down";

/// What the simulated model says after `tokens`: a function of nothing else, as greedy decoding is.
TokenId next_token(const std::vector<TokenId>& tokens);
float score_of(TokenId target, int64_t position);
std::vector<TokenId> expected_output(const SequenceRequest& request);

/// A worker that keeps what a real one keeps: block tables and, per slot of its cache, what was written there. As keys and values do, a
/// slot's contents depend on its token and on what its sequence had before it.
class SimulatedWorker {
 public:
  /// Gives the tokens of a sequence, prompt and sampled.
  using TokensOf = std::function<std::vector<TokenId>(SequenceId)>;

  SimulatedWorker(WorkerLimits limits, TokensOf tokens_of);
  /// Computes a plan and checks that it is one that this worker can compute.
  PlanOutcome compute(const Plan& plan);
  /// Breaks down amid the plan: what it was to write is garbage.
  PlanOutcome break_down(const Plan& plan);
  /// One sequence of the plan fails, and leaves garbage.
  PlanOutcome compute_all_but(size_t broken, const Plan& plan);

 private:
  struct Slot {
    TokenId token = -1;
    uint64_t chain = 0;  ///< over the sequence's tokens up to this one, as the slots before it tell
  };
  void take_in(const Plan& plan);
  bool sees(int64_t position, int64_t query) const;
  void check_writes(const Plan& plan);
  void check_reads(const PlannedSequence& s);
  void spoil(const PlannedSequence& s);
  SequenceOutcome compute(const PlannedSequence& s);
  Slot& slot(SequenceId id, int64_t position);

  WorkerLimits limits_;
  TokensOf tokens_of_;
  std::vector<Slot> cache_;
  std::map<uint64_t, std::vector<uint32_t>> tables_;
  std::map<uint64_t, std::vector<TokenId>> histories_;  ///< what penalties see
};

struct Heard {
  SequenceRequest request;
  std::vector<TokenId> sampled;
  std::vector<float> scores;
  int64_t cached = 0;
  std::optional<FinishReason> finished;
  std::optional<Status> failed;
  bool cancelled = false;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed, int64_t step_tokens = 24, bool prefix_cache = true);

  uint64_t roll(uint64_t sides) { return random_() % sides; }

  void submit(SequenceRequest request);
  SequenceRequest random_request(uint64_t id);
  /// One that begins as one of a few texts or one of the sequences before it does.
  SequenceRequest related_request(uint64_t id);
  void join(WorkerLimits limits);
  void kill_one();
  void cancel(uint64_t id);
  /// Computes one of the plans that are out.
  void compute_one();
  /// One of the plans that are out fails, for one of its sequences or as a whole.
  void break_one();
  void finish_all() {
    while (!plans_.empty()) compute_one();
  }
  bool has_plans() const { return !plans_.empty(); }
  size_t workers() const { return workers_.size(); }
  std::map<uint64_t, Heard>& heard() { return heard_; }
  Scheduler& scheduler() { return scheduler_; }
  std::vector<SendPlan>& plans() { return plans_; }
  /// Tokens that workers have computed.
  uint64_t computed_tokens() const { return computed_tokens_; }

  void feed(Event event);
  void expect_right_answers();

 private:
  SendPlan take_plan();

  std::mt19937_64 random_;
  Scheduler scheduler_;
  std::map<WorkerId, std::unique_ptr<SimulatedWorker>> workers_;
  std::vector<SendPlan> plans_;
  std::map<uint64_t, Heard> heard_;
  uint32_t next_worker_ = 1;
  uint64_t computed_tokens_ = 0;
};

WorkerLimits small_worker();
SequenceRequest request(uint64_t id, size_t prompt, int64_t tokens);

}  // namespace moestro::orchestrator
