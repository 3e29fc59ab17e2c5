#pragma once
// Inputs and outputs of the scheduler.

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/activation/activation_matrix.h"
#include "common/clock.h"
#include "common/expert_copy.h"
#include "common/ids.h"
#include "common/plan_parts.h"
#include "common/sampling.h"
#include "common/status.h"
#include "orchestrator/scheduler/token_constraint.h"

namespace moestro::orchestrator {

/// A worker in this process; a worker that returns gets a new id.
using WorkerId = Id<struct WorkerTag, uint32_t>;

/// What is made of the prompt's final hidden states: nothing, the last one, or their mean.
enum class Pooling : uint8_t { kNone, kLast, kMean };

/// One choice of one request.
struct SequenceRequest {
  SequenceId id;
  std::vector<TokenId> prompt;  ///< at least one token
  /// Of an encoder-decoder model: what is encoded, whole; `prompt` is what the target begins with. The choices of a
  /// request have one vector, and share what a worker has made of it. Null: the model has no encoder.
  std::shared_ptr<const std::vector<TokenId>> source = nullptr;
  int64_t tokens_max = 0;       ///< sampled tokens; 0: only score or pool the prompt
  bool open_ended = false;      ///< tokens_max is nobody's wish: fewer will do where a worker holds no more
  Sampling sampling;
  std::shared_ptr<const std::vector<LogitBias>> bias = nullptr;  ///< one list for all choices; may be null
  int32_t score_top = -1;       ///< >= 0: log-probabilities of the prompt's tokens, and the n best
  Pooling pooling = Pooling::kNone;  ///< another one: tokens_max is 0, and Finished has the embedding
  bool ignore_eos = false;
  std::vector<TokenId> stop_ids = {};  ///< end it as the model's end tokens do, ignore_eos or not
  int32_t priority = 0;         ///< of those that wait in its flow, the lowest is admitted first
  bool text_ends =
      false;  ///< the caller looks for the end in the text and cancels it, even if it has ended by itself
  std::shared_ptr<TokenConstraint> constraint = nullptr;  ///< null: the answer may be any text
  double low_share_max = 1;     ///< of its choices, the part that low copies of experts may serve, or none; 0: full
                                ///< copies alone
  bool background = false;      ///< belongs to a batch: others are admitted, and their prompts computed, before it
  std::string flow;             ///< its sender: an API key's name or a batch's id; each gets its share
  std::string prefix_domain;    ///< KV blocks are shared only between sequences of one domain
  std::string request_id = {};  ///< for the worker's log
};

struct SampledToken {
  TokenId id = 0;
  TokenScore score;
};

struct WorkerLimits {
  uint32_t kv_blocks = 0, kv_block_tokens = 16;
  uint32_t context_max = 0;         ///< positions of one sequence
  uint32_t step_tokens_max = 0, step_sequences_max = 0;
  uint32_t kv_sinks = 0,
           kv_window =
               0;  ///< a query sees the first kv_sinks and the last kv_window positions; kv_window 0: all of them
  uint32_t kv_host_blocks = 0;           ///< copies of blocks that it can keep in host memory; 0 with a window
  uint32_t state_slots = 0;     ///< states of sequences that it has room for; 0: its model has none
  uint32_t state_interval = 0;  ///< tokens between the prefixes of a long prompt whose states are kept: whole blocks
  uint32_t overtaking_tokens_max = 0;  ///< tokens of a plan that overtakes another; 0: none does
};

/// One sequence's part of a plan: its tokens at positions [first_position, first_position + tokens.size()).
struct PlannedSequence {
  SequenceId id;
  int64_t first_position = 0;
  std::vector<TokenId> tokens;       ///< kSampledByParent: only alone
  std::vector<TokenId> ends =
      {};  ///< with kSampledByParent: if that token is one of these, the sequence has ended and nothing is computed
  uint32_t blocks_first = 0;         ///< entries of its block table from here on are `blocks`
  std::vector<uint32_t> blocks;
  bool sample = false;
  Sampling sampling;
  std::shared_ptr<const std::vector<LogitBias>> bias = nullptr;  ///< may be null
  std::shared_ptr<const TokenMask> allowed = nullptr;            ///< null: every token may be sampled
  std::vector<TokenId> score_targets;  ///< empty, or one per token (-1: none)
  int32_t score_top = 0;
  /// For penalties: the sequence's tokens from entry history_first on. The first history_prompt tokens of the sequence
  /// are its prompt. The last may be kSampledByParent.
  uint32_t history_first = 0, history_prompt = 0;
  std::vector<TokenId> history = {};
  bool text_ends = false;  ///< its routes count when it is released
  int64_t counted = 0;  ///< activations of positions before it have been counted
  std::string request_id = {};  ///< where the worker does not know the sequence yet
  int64_t state_sum_from = -1;  ///< >= 0: the sum of the final hidden states from this position on is wanted
  double low_share_max = 1;     ///< SequenceRequest::low_share_max
  /// Where the model has states of sequences: the slot that has this one's at first_position (not read at 0), and where
  /// its states go, ascending; the last is the one after its last token.
  uint32_t state = 0;
  std::vector<StateWrite> states = {};
  /// Of an encoder-decoder model. source: its tokens are its source, and `memory` has the blocks that the encoder's
  /// output goes to. Of a target: the blocks of the memory, which has `memory_tokens` positions, in the first plan.
  bool source = false;
  std::vector<uint32_t> memory = {};
  uint32_t memory_tokens = 0;
};
struct Plan {
  PlanId id;
  PlanId parent;  ///< the previous plan, if it was in flight when this one was made; 0: none
  std::vector<PlannedSequence> sequences;
  std::vector<ReleasedSequence> released;
  std::vector<KvCopy> kv_copies =
      {};  ///< made before anything is computed, in order, even if the plan fails
  bool overtakes = false;  ///< it may run between two layers of the plan in flight, and be answered before that
};

struct SequenceOutcome {
  SequenceId id;
  std::vector<SampledToken> sampled;
  std::vector<TokenScore> scores;  ///< one per score target
  Status error;                    ///< this sequence failed
  std::vector<activation::ActivationCount> activations = {};  ///< of positions that had not been counted
  std::vector<double> state_sum = {};                         ///< where it was wanted: one per value of a hidden state
  CopyCounts copies = {};  ///< of the plan's choices; nothing if all experts are full
};
/// What a plan was to compute.
struct PlanWork {
  int64_t tokens = 0;
  bool reads_prompts = false;  ///< not only a token of each sequence
};
struct PlanOutcome {
  PlanId plan;
  std::vector<SequenceOutcome> sequences;
  Status error;  ///< the whole plan failed
};

// Events
struct Submitted {
  SequenceRequest request;
};
struct Cancelled {
  SequenceId id;
  int64_t sampled = -1;  ///< the number of its sampled tokens that are its answer; -1: all
};
struct WorkerJoined {
  WorkerId worker;
  WorkerLimits limits;
  uint64_t version = 0;  ///< of the weights that it computes with
};
struct VersionServed {  ///< the version that workers get when they attach from now on
  uint64_t version = 0;
};
struct WorkerLost {
  WorkerId worker;
  bool died = true;  ///< otherwise it was asked to stop: nothing that it was to compute is why
};
struct PlanDone {
  WorkerId worker;
  PlanOutcome outcome;
  Nanos took{0};  ///< time of computation, as the worker says; 0: unknown
};
struct Tick {  ///< the current time; the scheduler has no other clock
  Nanos now;
};
using Event = std::variant<Submitted, Cancelled, WorkerJoined, WorkerLost, PlanDone, VersionServed, Tick>;

enum class FinishReason : uint8_t { kStop, kLength };

// Actions
struct SendPlan {
  WorkerId worker;
  Plan plan;
};
struct SendRelease {  ///< sent if no plan follows that could carry it
  WorkerId worker;
  std::vector<ReleasedSequence> released;
};
struct RenewWorker {  ///< it has finished with an older version and must attach again, as a new worker
  WorkerId worker;
};
struct Progress {  ///< new scores of prompt tokens and newly sampled tokens, in order
  SequenceId id;
  std::vector<TokenScore> prompt_scores;
  std::vector<SampledToken> sampled;
  int64_t prompt_tokens_done = 0;
  int64_t prompt_tokens_cached = 0;  ///< tokens of the prompt found in the KV cache
  CopyCounts copies = {};  ///< of what was computed since the last one
};
struct Finished {
  SequenceId id;
  FinishReason reason = FinishReason::kStop;
  std::vector<double> embedding = {};  ///< pooled, not normalised; empty without pooling
};
struct Failed {
  SequenceId id;
  Status error;
  bool quarantined = false;  ///< workers died repeatedly while it was in flight: clients must not retry it
};
using Action = std::variant<SendPlan, SendRelease, RenewWorker, Progress, Finished, Failed>;

}  // namespace moestro::orchestrator
