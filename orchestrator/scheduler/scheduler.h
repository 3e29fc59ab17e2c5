#pragma once
// Continuous batching over one or more workers of one model.
//
// At every step of a worker: running sequences get one token each; what is left of the step's token budget goes to chunks of
// prompts. A sequence is admitted to the worker with the least to do when its whole prompt fits that worker's free KV blocks. When a
// running sequence needs a block and none is free, the youngest on that worker is sent back to the queue and prefilled again later
// from its tokens (recompute). Sampling is keyed by (seed, choice, position), so recomputing never changes a token.
//
// Who waits for room on a worker waits as long as it takes. Who waits because no worker is there at all fails after `worker_wait`.

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "orchestrator/scheduler/kv_blocks.h"
#include "orchestrator/scheduler/types.h"

namespace moestro::orchestrator {

struct SchedulerOptions {
  int64_t step_tokens = 512;       ///< token budget of a step (a worker's own limit may be lower)
  std::vector<TokenId> eos_ids;
  int deaths_max = 3;              ///< a sequence in flight at so many deaths of its worker fails
  Nanos worker_wait = std::chrono::seconds(60);  ///< a sequence fails that has waited so long while no worker was there
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  std::vector<Action> step(Event event);

  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return sequences_.size() - waiting_.size(); }
  size_t workers() const { return workers_.size(); }
  /// Used and total KV blocks over all workers.
  std::pair<uint64_t, uint64_t> kv_blocks() const;

 private:
  struct Sequence;
  struct Worker;

  void on(Submitted&& event);
  void on(Cancelled&& event);
  void on(WorkerJoined&& event);
  void on(WorkerLost&& event);
  void on(PlanDone&& event);
  void on(Tick&& event);

  void admit();
  Worker* least_loaded_with_room(const Sequence& s);
  void make_plans();
  Plan form_plan(Worker& worker);
  bool make_room(Worker& worker, Sequence& s, int64_t tokens);
  void plan_chunk(Sequence& s, int64_t tokens, Plan& plan);
  void apply(Worker& worker, Sequence& s, SequenceOutcome& outcome);
  bool finished(Worker& worker, Sequence& s);
  void plan_failed(const std::vector<SequenceId>& in_flight, const Status& error);
  void send_back(Worker& worker, Sequence& s);
  void remove(Sequence& s);
  void fail(Sequence& s, Status error);
  Sequence* find(SequenceId id);

  SchedulerOptions options_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::deque<Sequence*> waiting_;  ///< first is next
  std::map<WorkerId, std::unique_ptr<Worker>> workers_;
  uint64_t next_plan_ = 1, next_admission_ = 1;
  Nanos now_{0};  ///< of the last Tick
  std::vector<Action> actions_;
};

}  // namespace moestro::orchestrator
