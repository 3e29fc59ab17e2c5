#pragma once
// The types that the scheduler's files share: its state of a sequence and of a worker.

#include <algorithm>

#include "orchestrator/scheduler/batch_turn.h"
#include "orchestrator/scheduler/kv_window.h"
#include "orchestrator/scheduler/scheduler.h"
#include "orchestrator/scheduler/step_growth.h"
#include "orchestrator/scheduler/step_time_model.h"

namespace moestro::orchestrator {

/// The entry of a block table that no query sees any more; its block was released.
inline constexpr uint32_t kNoBlock = UINT32_MAX;

/// What an encoder makes of a source, in KV blocks of a worker. The sequences of a request hold it together.
struct Scheduler::Memory {
  std::vector<uint32_t> blocks;
  int64_t holders = 0;
  bool under_way = false;  ///< a plan in flight encodes the source
  bool written = false;
};

/// What is known of a source, whoever has it encoded, and wherever: of all sequences that share it.
struct Scheduler::Origin {
  int64_t sequences = 0;   ///< that are here
  int deaths = 0;          ///< of workers while they had it to encode, since it was last encoded
  bool alone = false;      ///< it was in a plan that failed as a whole, or killed its worker: it is encoded by itself
  bool charged = false;    ///< to the flow of the sequence for which it was encoded first
};

struct Scheduler::Sequence {
  SequenceRequest request;
  std::vector<TokenId> tokens;  ///< prompt and what has been sampled
  int64_t computed = 0;         ///< positions whose KV its worker holds, or held while a query could see them
  int64_t scored = 0;           ///< prompt positions whose score has been given out
  int64_t pooled = 0;           ///< prompt positions before it are in state_sum, or are not to be
  std::vector<double> state_sum;  ///< of the final hidden states that are pooled
  Worker* worker = nullptr;     ///< null: waiting
  uint64_t version = 0;         ///< of the weights that its answer has begun with; 0: nothing has been given out
  bool apart = false;           ///< waits in apart_
  bool waits_for_room = false;  ///< there, for a worker that can hold it
  FairQueue::Flow* flow = nullptr;  ///< whose it is, in the queue of its class
  bool aged = false;            ///< of a batch, and has waited so long that it counts as the others do
  Nanos further_at{0};          ///< when it came, or when it last got further
  Nanos without_worker_since{0};  ///< while waiting: since when no worker has been there
  std::vector<uint32_t> blocks;   ///< by position; kNoBlock: given back
  uint32_t state = kNoBlock;    ///< slot of its state, where its worker's model has such; kNoBlock: waiting
  uint32_t resumes = kNoBlock;  ///< slot that is held, with the state from which its next plan goes on
  int64_t fork = 0;             ///< end of the blocks that were found for it: another prompt begins alike up to there
  int64_t rolled = -1;          ///< the last block of its answer after which its state was kept
  uint32_t blocks_sent = 0;     ///< entries of `blocks` that the worker knows
  std::shared_ptr<const TokenMask> allowed;  ///< what its constraint lets it say next; null: not asked yet, or anything
  int64_t history_sent = 0;     ///< tokens that the worker's history of this sequence has
  Memory* memory = nullptr;     ///< of its source, where it has one: from its admission on
  Origin* origin = nullptr;     ///< of its source, where it has one
  int64_t blocks_left = 0;      ///< leading entries, sinks aside, that are kNoBlock
  std::vector<PrefixKey> keys;  ///< keys[0]: the root, keys[i + 1]: of block i; as far as they were asked for
  uint32_t keys_block_tokens = 0;
  int64_t reached = 0;          ///< the highest `computed` so far, whoever computed it
  int64_t cached_tokens = 0;    ///< of the prompt: found, not computed
  uint64_t admission = 0;       ///< order of admission; the highest is the youngest
  int64_t stands = -1;          ///< of its positions, so many count; -1: all that were computed
  int64_t in_flight = 0;        ///< tokens in plans under way
  int64_t awaited = 0;          ///< tokens that those will sample
  PlanId last_plan;             ///< that it was in
  int64_t furthest = 0;         ///< the highest `computed` after a plan of its own
  int64_t charged = 0;          ///< tokens that its flow has been charged for: computing them again is not its fault
  int deaths = 0;               ///< of its workers while it was in flight, since it was last beyond where one died
  int64_t alone_until =
      0;  ///< it was in a plan that failed as a whole, or killed its worker: until it is beyond, it runs by itself

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t prompt() const { return static_cast<int64_t>(request.prompt.size()); }
  bool samples() const { return request.tokens_max > 0; }
  /// Whether a chunk that ends before `end` has hidden states that are still to be pooled.
  bool pools(int64_t end) const { return request.pooling != Pooling::kNone && end > pooled; }
  bool alone() const { return computed < alone_until || (encodes() && origin->alone); }
  /// Of workers that computed it, or its source since that was last encoded.
  int all_deaths() const { return deaths + (origin != nullptr ? origin->deaths : 0); }
  bool of_batch() const { return request.background && !aged; }
  /// The first position that is in no plan yet.
  int64_t planned() const { return computed + in_flight; }
  /// Its length when the plans in flight are done.
  int64_t expected() const { return length() + awaited; }
  int64_t source() const { return request.source ? std::ssize(*request.source) : 0; }
  /// Its source comes before its target.
  bool encodes() const { return request.source && !(memory != nullptr && memory->written); }
  bool decodes() const { return !encodes() && expected() - planned() == 1; }
  bool reads_prompt() const { return encodes() || expected() - planned() > 1; }
  /// Tokens of the target that are still to be computed.
  int64_t left() const { return length() - computed; }
  /// Tokens that a worker must have room for, alone with this sequence.
  int64_t least_room() const { return request.open_ended ? length() + 1 : prompt() + request.tokens_max; }
  /// Tokens that need not be computed if their KV is there: not the last, whose logits are wanted, and no token of a
  /// prompt whose log-probabilities are still to be given out or whose hidden state is still to be pooled.
  int64_t reusable_max() const {
    if (pools(length())) return std::min(pooled, length() - 1);
    const bool scores = request.score_top >= 0 && scored < prompt() - 1;
    return scores ? std::min(scored, length() - 1) : length() - 1;
  }
};

/// What a worker can hold of one sequence if it has nothing else.
struct Scheduler::Room {
  int64_t length = 0;        ///< tokens
  int64_t blocks = 0, block_tokens = 1;
  int64_t source = 0;        ///< tokens of the longest source
  Nanos left{0};             ///< when the worker left

  /// Of one with a source: beside its memory.
  int64_t length_max(const Sequence& s) const {
    const int64_t memory = (s.source() + block_tokens - 1) / block_tokens;
    return s.request.source ? std::min(length, (blocks - memory) * block_tokens) : length;
  }
  bool holds(const Sequence& s) const {
    return s.least_room() <= length_max(s) && (!s.request.source || s.source() <= source);
  }
  bool covers(const Room& other) const {
    return length >= other.length && source >= other.source &&
           blocks * block_tokens >= other.blocks * other.block_tokens;
  }
};

/// The part of a sequence in a plan in flight.
struct Scheduler::Part {
  SequenceId id;                 ///< as the plan has it
  Sequence* sequence = nullptr;  ///< null: it has left, and the result of this part is dropped; of a source: one of
                                 ///< those that hold its memory
  int64_t first = 0, tokens = 0; ///< positions
  int64_t source = 0;            ///< tokens of its source; then it has no positions
  std::shared_ptr<const std::vector<TokenId>> encoded = {};  ///< that source
  bool samples = false;
  uint32_t resumes = kNoBlock;       ///< state slot that it reads, held until it has landed
  std::vector<StateWrite> kept = {};  ///< states of prefixes, in slots that are held as long

  /// Until the sequence is beyond this position, it has not got further than what it was doing here.
  int64_t end() const { return first + tokens; }
};

struct Scheduler::Flight {
  PlanId plan;
  std::vector<Part> parts = {};
  bool lost = false;  ///< an earlier plan failed completely, so this one will fail too, and nothing may follow it
  bool alone = false;      ///< of a suspect, and nothing else is to be under way at its worker
  bool overtakes = false;  ///< it may be done before the plan that was sent before it
  bool of_batches = false; ///< nobody reads along
  int64_t tokens = 0;
  std::vector<uint32_t> left_written = {};  ///< KV blocks that it writes to for sequences that have left since
};

struct Scheduler::Worker {
  WorkerId id;
  WorkerLimits limits;
  uint64_t version = 0;
  KvBlocks kv;
  KvBlocks states{limits.state_slots, limits.kv_block_tokens};
  KvWindow window{limits};
  std::map<const std::vector<TokenId>*, Memory> memories = {};  ///< by SequenceRequest::source
  bool source_left_out = false;         ///< a source found no room in the plan before, so one leads the next
  std::vector<Sequence*> running = {};  ///< in order of admission
  std::deque<Flight> flights = {};      ///< plans in flight, in the order in which they are computed
  std::vector<ReleasedSequence> released = {};  ///< released sequences that the worker has not been told of
  BatchTurn batch_turn = {};
  StepTimeModel step_times = {};
  StepGrowth step_growth{0};
  bool leaving = false;                 ///< takes no new sequences, and leaves when it has none
  Nanos leaves_from{0};                 ///< earliest time: it has just arrived with an older version
  bool suspect_was_last = false;        ///< a suspect was alone in the last plan

  bool has_states() const { return states.total() > 0; }
  /// The longest sequence that it can hold; of one with a source: beside its memory.
  int64_t length_max() const { return window.length_max(); }
  int64_t length_max(const Sequence& s) const { return room().length_max(s); }
  Room room() const { return {length_max(), kv.total(), kv.block_tokens()}; }
  size_t batch_sequences() const {
    return static_cast<size_t>(
        std::count_if(running.begin(), running.end(), [](const Sequence* s) { return s->of_batch(); }));
  }
  /// Running sequences whose answers are read as they come.
  size_t readers() const {
    return static_cast<size_t>(
        std::count_if(running.begin(), running.end(), [](const Sequence* s) { return !s->request.background; }));
  }
  /// Blocks that the running sequences will soon need: one each. They are kept free at admission, so that a new
  /// sequence is not sent back at once to make room.
  int64_t growth() const { return static_cast<int64_t>(running.size()); }
  int64_t load() const {
    int64_t tokens = 0;
    for (const Sequence* s : running) tokens += 1 + s->left();
    for (const auto& [source, memory] : memories) tokens += memory.written ? 0 : std::ssize(*source);
    return tokens;
  }
};

}  // namespace moestro::orchestrator
