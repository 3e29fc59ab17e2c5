#pragma once
// Continuous batching over one or more workers of one model.
//
// At every step of a worker, running sequences get one token each, and the rest of the step's token budget goes to
// chunks of prompts. A sequence is admitted when a worker has KV blocks for its whole prompt. It goes to the worker
// that can compute it soonest, by the tokens that each must compute before. If a running sequence needs a block and
// there is none, the youngest sequence on that worker is sent back to the queue and prefilled again later from its
// tokens (recompute). Sampling is keyed by (seed, choice, position), so recomputing never changes a token.
//
// Full blocks are found again by their contents (prefix_key.h, kv_blocks.h). A sequence starts after the longest prefix
// that its worker has, from a prompt, an answer, or its own earlier run. Blocks that exist are never computed again,
// and blocks that others can find are never written. If a worker has blocks in host memory in addition to its device's,
// evicted full blocks are copied there and back (kv_blocks.h), so a sequence that was sent back continues from them.
// With a window (kv_window.h), blocks are released as they leave it.
//
// A sequence of an encoder-decoder model has a source, which is encoded in one step before its target begins. What
// comes of it lies in KV blocks as long as a sequence of the request is on the worker (source_memory.cc).
//
// Where a model keeps a state of each sequence besides the entries of its positions, each running sequence has a slot
// for it, and prefixes are found up to positions whose states were kept (state_slots.cc).
//
// There are two classes. Sequences of batches wait behind all others, their prompts are computed after those of others,
// and they are the first to be sent back, also when an interactive sequence waits for room. They keep one place and one
// token for each `interactive_weight` of the others (batch_turn.h). A batch's sequence that has waited for
// `batch_aging` counts as interactive. Batches' sequences run in groups as large as the KV cache holds with the answers
// that are expected of them. `tpot_target` bounds only steps that somebody reads: beside an interactive sequence, those
// of batches take turns in what the target leaves, and keep their KV blocks meanwhile. Within a class, the next turn
// goes to the API key, or the batch, that was served the fewest tokens (fair_queue.h).
//
// A worker has up to two plans under way (`steps_in_flight`): the next is sent before the result of the one before it,
// its parent, so that no worker waits for the wire. A running sequence then goes on with "what the parent sampled", a
// prompt with its next chunk; the KV blocks of both are its own. Plans of a worker are computed in their order. What a
// plan computes of a sequence that has left meanwhile is dropped, and its blocks are free at once: whoever gets them
// writes to them in a later plan. Not sent ahead is: what a constraint lets a sequence say after a token that is not
// known yet, what is known to be the end, anything beside a sequence that runs alone, and a long step beside lines of a
// batch, so that whoever comes is in the very next one.
//
// A step of batches that lasts longer than `tpot_target` is overtaken (overtaking.cc): interactive sequences that come
// meanwhile, or go on, get small plans that run between its layers, one at a time.
//
// All workers compute with one version of the weights, except while a new version replaces it (rollover.cc). A sequence
// whose output has begun continues with its version, or fails.
//
// The scheduler computes which tokens a grammar allows next, which can be much work. At each event a bounded part of it
// is done. A sequence whose mask is not ready is left out of the plan, and others continue.
//
// A sequence that waits for room on a worker waits without a limit. If there is no worker at all, it fails after
// `worker_wait`.

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "orchestrator/scheduler/answer_lengths.h"
#include "orchestrator/scheduler/fair_queue.h"
#include "orchestrator/scheduler/kv_blocks.h"
#include "orchestrator/scheduler/types.h"

namespace moestro::orchestrator {

struct SchedulerOptions {
  static constexpr int64_t kAnyStep = int64_t{1} << 20;
  int64_t step_tokens = 512;       ///< token budget of a step (a worker's own limit may be lower)
  int64_t usual_step = 0;          ///< steps of more tokens than this are taken only where they are measured to be
                                   ///< worth it (step_growth.h), and to last at most twice as long as one of so many,
                                   ///< or a quarter longer beside an interactive sequence that decodes; 0: they are
  std::vector<TokenId> eos_ids;
  size_t steps_in_flight = 2;      ///< 1 or 2: plans that a worker has at once
  int deaths_max =
      2;  ///< a sequence that was in flight at this many deaths of workers, without progress between them, is
          ///< quarantined
  Nanos worker_wait = std::chrono::seconds(60);  ///< a sequence fails after waiting this long while there was no worker
  bool overtaking = true;          ///< with a tpot_target: interactive sequences overtake longer steps of batches
  Nanos tpot_target{0};            ///< predicted upper bound for steps that decode for an interactive sequence; 0: none
  int64_t interactive_weight = 16; ///< tokens of others for one of batches, if both could use everything
  Nanos batch_aging =
      std::chrono::seconds(60);    ///< a batch's sequence without progress for this long counts as interactive
  Nanos renew_pause =
      std::chrono::seconds(10);    ///< a worker that registers with another version is not told before this to fetch
                                   ///< the served one
  int64_t mask_work = 1'000'000;   ///< for grammar masks at each event, in units of about 10 ns
  bool prefix_cache = true;        ///< blocks of equal prefixes are shared and kept
  PrefixSecret prefix_secret = {}; ///< for the hash of their keys
};

/// Sums over all workers. A block of a worker's cache is held by sequences, cached (held by none, but can be found) or
/// free.
struct KvFigures {
  uint64_t blocks = 0, held = 0, cached = 0;
  uint64_t reused_tokens = 0;  ///< of prompts, found instead of computed, since the start
  uint64_t host_blocks = 0, host_used = 0;  ///< blocks in host memory in addition to devices'; those that hold copies
  uint64_t moved_out_tokens = 0, moved_in_tokens = 0;  ///< to host memory, and back, since the start
  uint64_t state_slots = 0, states_held = 0, states_cached = 0;  ///< of sequences, for models that have such
  uint64_t states_kept = 0, states_restored = 0;  ///< of prefixes; how often one was gone on from; since the start
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  std::vector<Action> step(Event event);
  /// Removes from a plan's counts the outcomes that will be dropped: those of sequences that have left since it was
  /// made.
  void leave_out_dropped(WorkerId worker, PlanOutcome& outcome) const;
  /// Of a plan in flight; nothing of others.
  PlanWork work_of(WorkerId worker, PlanId plan) const;

  size_t waiting() const { return interactive_.size() + batches_.size() + apart_.size(); }
  size_t waiting_of_batches() const;
  /// Sequences that all workers can have in their steps at once.
  size_t places() const;
  size_t running() const { return sequences_.size() - waiting(); }
  /// Sequences that were sent back to the queue to make room, since the start.
  uint64_t preemptions() const { return preemptions_; }
  /// Sequences that failed because they were in flight at repeated deaths of workers, since the start.
  uint64_t quarantined() const { return quarantined_; }
  size_t workers() const { return workers_.size(); }
  /// True if a sequence waits only for its grammar's mask, which the next event continues: send a Tick at once.
  bool masks_wait() const { return masks_wait_; }
  KvFigures kv() const;
  /// For tests: the first inconsistency of the blocks' bookkeeping; empty if there is none.
  std::string inconsistency() const;

 private:
  struct Sequence;
  struct Memory;
  struct Origin;
  struct Worker;
  struct Room;
  struct Part;
  struct Flight;
  struct Place {
    Worker* worker = nullptr;
    int64_t reused_blocks = 0;
  };
  using KeySet = std::unordered_set<PrefixKey, PrefixKeyHash>;

  void on(Submitted&& event);
  void on(Cancelled&& event);
  void on(WorkerJoined&& event);
  void on(WorkerLost&& event);
  void on(PlanDone&& event);
  void on(VersionServed&& event);
  void on(Tick&& event);

  // admission.cc
  FairQueue& queue_of(const Sequence& s);
  void enqueue(Sequence& s, bool first);
  void dequeue(Sequence& s);
  void age();
  bool make_way(const Sequence& s);
  void preempt(Worker& worker, Sequence& s);
  bool count_running();
  void admit();
  void admit_waiting(std::vector<Sequence*>& admitted);
  void admit_to(const Place& place, Sequence& s, std::vector<Sequence*>& admitted);
  bool fits_somewhere(const Sequence& s) const;
  void fail_for_want_of_room(Sequence& s);
  int64_t blocks_wanted(const Worker& worker, const Sequence& s) const;
  int64_t length_expected(const Worker& worker, const Sequence& s) const;
  int64_t growth(const Worker& worker, std::span<const Sequence* const> coming);
  Place choose_worker(Sequence& s);
  void enter(Worker& worker, Sequence& s, int64_t reused_blocks);
  bool alike() const;
  void spread(std::vector<Sequence*> admitted);
  bool foreseen(std::span<Sequence* const> admitted, std::span<Worker* const> targets);

  // planning.cc
  void make_plans();
  void make_releases();
  static void release(Worker& worker, const Sequence& s);
  bool may_plan(const Worker& worker) const;
  struct PlanningOrder {
    std::vector<Sequence*> sequences;
    size_t fixed = 0;  ///< so many of them are in the step in any case; the others as far as the target leaves room
  };
  PlanningOrder planning_order(Worker& worker);
  void share_step(const Worker& worker, PlanningOrder& order, size_t decodes) const;
  int64_t step_tokens_max(const Worker& worker) const;
  int64_t step_tokens(const Worker& worker) const;
  int64_t tokens_beside_decodes(const Worker& worker) const;
  int64_t elastic_budget(const Worker& worker, int64_t decodes, int64_t left, bool prompt) const;
  size_t room_for(const Worker& worker, bool background) const;
  size_t room_for_readers(const Worker& worker) const;
  PlanningOrder overtaking_order(const Worker& worker) const;
  void charge(Worker& worker, Flight& flight);
  int64_t plannable(const Worker& worker, const Sequence& s) const;
  Plan form_plan(Worker& worker, Flight& flight, bool overtakes);
  void send_plan(Worker& worker, Flight flight, Plan plan);
  bool make_room(Worker& worker, Sequence& s, int64_t tokens, PlanId plan);
  KeySet coming_blocks(const Worker& worker);
  bool another_computes(const Worker& worker, Sequence& s, const KeySet& coming);
  void note_coming(const Worker& worker, Sequence& s, int64_t end, KeySet& coming);
  void count_copies(const Worker& worker, std::span<const KvCopy> copies);
  Part plan_chunk(Worker& worker, Sequence& s, int64_t tokens, Plan& plan);

  // overtaking.cc
  bool may_be_overtaken(const Worker& worker, const Flight& flight) const;
  bool is_overtaken(const Worker& worker) const;
  void overtake(Worker& worker);
  static bool others_write(const Worker& worker, const Sequence& s);
  static void leave_written(Worker& worker, Flight& flight, const Part& part);
  static void settle(Worker& worker, const Flight& flight);

  // rollover.cc
  bool is_current(const Worker& worker) const;
  bool current_there() const;
  bool version_there(uint64_t version) const;
  bool is_everywhere(uint64_t version) const;
  bool is_of_before(const Sequence& s) const;
  bool takes(const Worker& worker, const Sequence& s) const;
  void set_apart();
  void admit_apart(std::vector<Sequence*>& admitted);
  void begin_to_leave();
  void let_leave();
  bool is_awaited(const Worker& worker) const;

  // missing_workers.cc
  Room room_of(const Worker& worker) const;
  void miss(const Worker& worker);
  void no_longer_missed(const Worker& worker);
  bool is_to_come_back(const Sequence& s) const;
  void wait_for_room(Sequence& s);
  void put_back();
  bool waited_for_room(Sequence& s);

  // quarantine.cc
  void forget_worker(WorkerId worker);
  using Sources = std::vector<std::shared_ptr<const std::vector<TokenId>>>;
  void suspect(SequenceId id, int64_t end, const Sources& sources);
  void suspect_source(const std::vector<TokenId>* source);
  void quarantine(Sequence& culprit);
  void give_up(const std::vector<SequenceId>& ids, int deaths);
  std::optional<std::vector<Sequence*>> suspects_turn(Worker& worker);

  // scheduler.cc
  void apply(Worker& worker, Part& part, SequenceOutcome& outcome);
  static bool pool(Sequence& s, int64_t end, std::vector<double> state_sum);
  bool finished(Worker& worker, Sequence& s);
  bool ends(const Sequence& s, TokenId token) const;
  std::vector<TokenId> ends_of(const Sequence& s) const;
  static void add_history(Sequence& s, PlannedSequence& p);
  bool know_allowed(Sequence& s);
  static Part* part_of(Flight& flight, size_t index, SequenceId id);
  void plan_failed(Worker& worker, size_t index, const Status& error);
  static void land(Part& part);
  void begin_again(Worker& worker, const std::vector<SequenceId>& ids);
  static void withdraw(Part& part);
  static void withdraw_all(Worker& worker, const Sequence& s);
  void send_back(Worker& worker, Sequence& s);
  void fail_if_forgotten(Sequence& s);
  void remove(Sequence& s);
  void fail(Sequence& s, Status error);
  void fail(Part& part, const Status& error);
  Sequence* find(SequenceId id);

  // state_slots.cc
  bool has_state_for(const Worker& worker, const Sequence& s, const PrefixLink& link) const;
  std::vector<int64_t> kept_after(const Worker& worker, const Sequence& s, int64_t first, int64_t end) const;
  void plan_states(Worker& worker, Sequence& s, Part& part, PlannedSequence& p);
  void keep_states(Worker& worker, Sequence& s, const Part& part);
  static void let_go_of_states(Worker& worker, Part& part);
  static void let_go_of_state(Worker& worker, Sequence& s);

  // source_memory.cc
  int64_t source_max(const Worker& worker) const;
  bool holds(const Worker& worker, const Sequence& s) const;
  static int64_t memory_wanted(const Worker& worker, const Sequence& s);
  static void hold_memory(Worker& worker, Sequence& s);
  static void let_go_of_memory(Worker& worker, Sequence& s);
  void lead_with_source(Worker& worker, PlanningOrder& order) const;
  void note_source_left_out(Worker& worker, const Flight& flight) const;
  void enter_origin(Sequence& s);
  void leave_origin(const Sequence& s);
  bool may_encode(const Worker& worker, const Sequence& s) const;
  bool is_with_another(const Worker& worker, const Sequence& s) const;
  static const Sequence& first_that_waits(const Worker& worker, const Memory& memory);
  std::optional<Part> plan_source(const Worker& worker, Sequence& s, int64_t& budget, Plan& plan) const;
  static std::vector<Sequence*> those_of(const Part& part);
  static bool hand_on_source(const Worker& worker, Part& part);
  void take_in_source(Part& part, const SequenceOutcome& outcome);
  void clear_sources(const Flight& flight, const PlanOutcome& outcome);
  static std::string memories_inconsistency(const Worker& worker, std::vector<uint32_t>& holders);

  // prefix_reuse.cc
  bool shares_blocks(const Sequence& s) const;
  PrefixLink link(const Worker& worker, Sequence& s, int64_t index);
  int64_t reusable_blocks(const Worker& worker, Sequence& s);
  void reuse(Worker& worker, Sequence& s, int64_t end);
  bool grow(Worker& worker, Sequence& s, int64_t tokens);
  void publish(Worker& worker, Sequence& s, int64_t from);
  void leave_behind(Worker& worker, Sequence& s);
  void give_back_all(Worker& worker, Sequence& s);

  SchedulerOptions options_;
  PrefixHasher hasher_;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::map<const std::vector<TokenId>*, Origin> origins_;  ///< of the sources of those
  FairQueue interactive_, batches_;  ///< waiting sequences, by class
  std::vector<Sequence*> apart_;     ///< sequences that wait for a worker of a certain version, or one that can hold
                                     ///< them, oldest first
  std::vector<Room> missing_;        ///< of workers that have left and may be back
  AnswerLengths answers_;            ///< of batches
  struct Future {
    int64_t length, more;  ///< tokens
  };
  std::vector<Future> futures_;      ///< scratch of growth()
  size_t aged_waiting_ = 0;          ///< sequences of batches in interactive_
  Nanos next_aging_{0};              ///< no sequence in batches_ ages before this
  uint64_t preemptions_ = 0, quarantined_ = 0;
  std::map<WorkerId, std::unique_ptr<Worker>> workers_;
  uint64_t next_plan_ = 1, next_admission_ = 1;
  uint64_t reused_tokens_ = 0, moved_out_ = 0, moved_in_ = 0, states_kept_ = 0, states_restored_ = 0;
  Nanos now_{0};  ///< of the last Tick
  uint64_t version_ = 0;        ///< version that is served; 0: unknown
  bool renewed_first_ = false;  ///< a first worker is changing to that version, and none has it yet
  int64_t mask_work_ = 0;  ///< remaining at this event
  bool masks_wait_ = false;
  std::vector<Action> actions_;
};

}  // namespace moestro::orchestrator
