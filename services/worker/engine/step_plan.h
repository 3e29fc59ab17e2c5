#pragma once
// A step for the engine: the messages of common/wire/worker_messages.fbs as plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "common/activation/activation_matrix.h"
#include "common/expert_copy.h"
#include "common/ids.h"
#include "common/plan_parts.h"
#include "common/sampling.h"
#include "common/status.h"

namespace moestro::engine {

inline constexpr int32_t kLogprobsMax = 128;  ///< best tokens listed per position
inline constexpr size_t kMicroBatchesMax = 64;  ///< of a plan

struct PlanToken {
  uint32_t sequence = 0;  ///< index in StepPlan::sequences
  int32_t position = 0;
  TokenId id = 0;
};

struct PlanSequence {
  SequenceId id;
  uint32_t blocks_first = 0;     ///< from this entry on, its block table is `blocks`
  std::vector<uint32_t> blocks;
  bool sample = false;           ///< after its last token
  Sampling sampling;
  std::vector<LogitBias> bias = {};
  TokenMask allowed = {};        ///< empty: every token may be sampled
  std::vector<TokenId> score_targets;  ///< empty, or one per token of the sequence; -1: none there
  int32_t score_top = 0;
  /// For penalties: the sequence's tokens from entry history_first on, which is 0 or where the worker's own history
  /// ends. The first history_prompt of them are the prompt. The last may be kSampledByParent.
  int64_t history_first = 0, history_prompt = 0;
  std::vector<TokenId> history = {};
  int64_t counted = 0;  ///< routes of positions before it have been counted, by whichever worker
  /// What ends the sequence: if the parent plan sampled one of these, nothing is computed, and the outcome is empty.
  std::vector<TokenId> ends = {};
  bool text_ends =
      false;  ///< its end may be found in its text later: which of its positions stand is said when it is released
  double low_share_max = 1;  ///< of its choices, the part that low copies may serve, or none; 0: full copies alone
  int64_t state_sum_from =
      -1;  ///< >= 0: the sum of its final hidden states, of the tokens of this plan from this position on, is wanted

  /// Its tokens are not drawn from the model's own logits.
  bool adjusts() const { return sampling.penalises() || !bias.empty() || !allowed.empty(); }
  /// Of a model that has states of sequences: the slot that has this one's before its first token (not read at position
  /// 0), and where its states go, as kernels::AttentionSequence has it.
  uint32_t state = 0;
  std::vector<StateWrite> states = {};
  // Of an encoder-decoder model:
  bool source = false;  ///< its tokens are all of its source, from position 0 on. They go through the encoder, which
                        ///< writes their memory; in a later plan the sequence goes on with its target
  /// Blocks of the memory, of the KV cache: whole ones for all tokens of a source. Of a target, empty: those of its
  /// source; else those of another sequence with the same source, whose memory has `memory_tokens` positions.
  std::vector<uint32_t> memory = {};
  int64_t memory_tokens = 0;
};

/// Tokens of a sequence are consecutive, in the order of their positions.
struct StepPlan {
  PlanId id;
  PlanId parent;  ///< the previous plan; if that failed completely, so does this one; 0: none
  std::string model;
  std::vector<PlanSequence> sequences;
  std::vector<PlanToken> tokens;
  std::vector<uint32_t> micro_batches;  ///< the first sequence of each, ascending; empty: all sequences are one
  std::vector<KvCopy> kv_copies;
  std::vector<ReleasedSequence> released;
  bool overtakes = false;  ///< it may run before a plan that came before it, or between two layers of that
};

struct SampledToken {
  TokenId id = 0;
  bool scored = false;  ///< log-probabilities were requested
  TokenScore score;
};

struct SequenceOutcome {
  SequenceId id;
  std::vector<SampledToken> sampled;
  std::vector<TokenScore> scores;
  std::vector<activation::ActivationCount> activations;
  std::vector<double> state_sum;  ///< one per value of a hidden state (state_sums.h); empty where it was not wanted
  CopyCounts copies;              ///< of the choices of its tokens of this plan; with EngineOptions::mixed
  Status status;  ///< an error: this sequence failed, the others stand
};

/// Figures of a step on a device, in addition to those of its memory.
struct DeviceWork {
  uint64_t host_experts = 0;  ///< experts that the CPU computed instead of waiting for the link
  uint64_t host_rows = 0;     ///< (token, expert) choices of theirs
  uint64_t rewinds = 0;       ///< layers that were queued before their routes were known, and had to be queued again
  uint64_t kv_in_bytes = 0, kv_out_bytes = 0;  ///< of the KV cache, from host memory and back to it
};

struct StepOutcome {
  PlanId plan;
  std::vector<SequenceOutcome> sequences;
  uint64_t step_us = 0, stall_us = 0;  ///< step_us without parked_us
  uint64_t parked_us = 0;              ///< other steps ran between two of its layers
  uint32_t parks = 0;                  ///< how often
  uint64_t expert_hits = 0, expert_misses = 0, fetched_bytes = 0;
  uint64_t dense_bytes = 0;     ///< of dense weights that take turns in memory, requested during the step
  uint64_t dense_stall_us = 0;  ///< of stall_us, waiting for those
  uint64_t kv_stall_us = 0;     ///< of stall_us, waiting for KV that moves, or for attention on the host
  uint32_t nonfinite_sequences = 0;  ///< failed because their activations or logits became NaN or infinite
  uint64_t dropped_rows = 0;         ///< (token, expert) choices beyond the capacity factor
  DeviceWork device = {};
  std::vector<CopyCounts> layer_copies = {};  ///< by MoE layer; with EngineOptions::mixed

  /// Resets it for `count` sequences; keeps its memory.
  void begin(PlanId of, size_t count);
};

}  // namespace moestro::engine
