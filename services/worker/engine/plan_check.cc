#include "services/worker/engine/plan_check.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops.h"

namespace moestro::engine {
namespace {

constexpr int64_t kBlock = kernels::kKvBlockTokens;

std::string name_of(const PlanSequence& s) { return "sequence " + std::to_string(s.id.value); }

Status check_sampling(const PlanSequence& s, int64_t vocab) {
  const Sampling& p = s.sampling;
  const auto bad = [&](const char* what) { return invalid_argument(name_of(s) + ": " + what); };
  if (!std::isfinite(p.temperature) || p.temperature < 0) return bad("temperature is not a number >= 0");
  if (p.top_k < 0) return bad("top_k is negative");
  if (!(p.top_p > 0 && p.top_p <= 1)) return bad("top_p is not in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return bad("min_p is not in [0, 1]");
  if (p.logprobs < -1 || p.logprobs > kLogprobsMax) return bad("logprobs is not between 0 and 128");
  if (s.score_top < 0 || s.score_top > kLogprobsMax) return bad("score_top is not between 0 and 128");
  MOESTRO_RETURN_IF_ERROR(check_adjustment(name_of(s), s, vocab));
  for (const TokenId t : s.score_targets)
    if (t < -1 || t >= vocab) return bad("a score target is not a token of the vocabulary");
  return Status::ok();
}

/// Every block that a query at `first` or later sees must hold what it reads there; what lies between the sinks and the
/// window may be gone.
Status check_written(const PlanSequence& s, const std::vector<uint32_t>& table, int64_t first,
                     const VisiblePositions& visible, std::span<const uint8_t> filled) {
  const int64_t window_begin = visible.window > 0 ? first - visible.window + 1 : 0;
  for (int64_t p = 0; p < first; p += kBlock) {
    const bool in_window = p + kBlock > window_begin;
    if (!in_window && p >= visible.sinks) continue;
    const int64_t needed = std::min(kBlock, (in_window ? first : std::min(first, visible.sinks)) - p);
    if (filled[table[static_cast<size_t>(p / kBlock)]] < needed)
      return invalid_argument(name_of(s) + ": position " + std::to_string(first) +
                              " follows positions that this cache does not hold" + " (from " + std::to_string(p) +
                              "); prefill the sequence again");
  }
  return Status::ok();
}

/// What the parent plan sampled for it; -1: nothing.
TokenId sampled_by_parent(const StepPlan& plan, const SequenceState& state) {
  return plan.parent.value != 0 && state.last_plan == plan.parent ? state.last_sampled : -1;
}

Status sampled_nothing(const StepPlan& plan, const PlanSequence& s) {
  return invalid_argument(name_of(s) + ": plan " + std::to_string(plan.parent.value) + " sampled nothing for it");
}

}  // namespace

Status check_copies(const StepPlan& plan, const EngineLimits& limits) {
  const int64_t all = limits.kv_blocks + limits.kv_host_blocks;
  for (const KvCopy& c : plan.kv_copies) {
    if (std::max(c.from, c.to) < all && std::min(c.from, c.to) < limits.kv_blocks) continue;
    return invalid_argument("plan " + std::to_string(plan.id.value) + ": a KV copy from block " +
                            std::to_string(c.from) + " to " + std::to_string(c.to) + ", of " +
                            std::to_string(limits.kv_blocks) + " and " + std::to_string(limits.kv_host_blocks) +
                            " in host memory");
  }
  return Status::ok();
}

Status check_plan(const StepPlan& plan, const EngineLimits& limits, std::vector<TokenRange>& ranges) {
  const std::string name = "plan " + std::to_string(plan.id.value);
  if (plan.model != limits.model)
    return invalid_argument(name + " is for model '" + plan.model + "', this worker has '" + limits.model + "'");
  if (static_cast<int64_t>(plan.tokens.size()) > limits.step_tokens_max)
    return exhausted(name + " has " + std::to_string(plan.tokens.size()) + " tokens, at most " +
                     std::to_string(limits.step_tokens_max));
  if (static_cast<int64_t>(plan.sequences.size()) > limits.step_sequences_max)
    return exhausted(name + " has " + std::to_string(plan.sequences.size()) + " sequences, at most " +
                     std::to_string(limits.step_sequences_max));
  if (plan.micro_batches.size() > kMicroBatchesMax)
    return exhausted(name + " has " + std::to_string(plan.micro_batches.size()) + " micro-batches, at most " +
                     std::to_string(kMicroBatchesMax));
  if (!std::ranges::is_sorted(plan.micro_batches) ||
      (!plan.micro_batches.empty() && plan.micro_batches.back() > plan.sequences.size()))
    return invalid_argument(name + ": its micro-batches are not its sequences in their order");

  // In the order of ids, one that is there twice stands beside itself. A step may have thousands: no pairs.
  ranges.resize(plan.sequences.size());
  for (uint32_t i = 0; i < ranges.size(); ++i) ranges[i].first = i;
  const auto id = [&](TokenRange r) { return plan.sequences[r.first].id.value; };
  std::ranges::sort(ranges, {}, id);
  if (const auto twice = std::ranges::adjacent_find(ranges, {}, id); twice != ranges.end())
    return invalid_argument(name + ": " + name_of(plan.sequences[twice->first]) + " appears twice");

  ranges.assign(plan.sequences.size(), {});
  for (uint32_t i = 0; i < plan.tokens.size(); ++i) {
    const uint32_t s = plan.tokens[i].sequence;
    if (s >= plan.sequences.size()) return invalid_argument(name + ": a token names no sequence of the plan");
    TokenRange& range = ranges[s];
    if (range.count == 0) range.first = i;
    else if (range.first + range.count != i)
      return invalid_argument(name + ": the tokens of " + name_of(plan.sequences[s]) + " are not consecutive");
    ++range.count;
  }
  return Status::ok();
}

Status check_source(const StepPlan& plan, const PlanSequence& s, TokenRange range, const EngineLimits& limits) {
  if (range.count == 0) return invalid_argument(name_of(s) + " has no tokens in this plan");
  if (s.sample || !s.score_targets.empty() || s.state_sum_from >= 0 || !s.history.empty() || !s.blocks.empty())
    return invalid_argument(name_of(s) + ": a source is neither sampled nor scored, and has no KV blocks of its own");
  if (range.count > limits.context_max)
    return invalid_argument(name_of(s) + ": its source has " + std::to_string(range.count) +
                            " tokens, the context is " + std::to_string(limits.context_max));
  for (uint32_t i = 0; i < range.count; ++i) {
    const PlanToken& t = plan.tokens[range.first + i];
    if (t.position != static_cast<int32_t>(i))
      return invalid_argument(name_of(s) + ": a source is whole, from position 0 on");
    if (t.id < 0 || t.id >= limits.vocab)
      return invalid_argument(name_of(s) + ": token id " + std::to_string(t.id) + " is outside the vocabulary of " +
                              std::to_string(limits.vocab));
  }
  return Status::ok();
}

namespace {

/// Blocks of a memory, and how many positions it has.
Status check_memory(const PlanSequence& s, int64_t tokens, const EngineLimits& limits) {
  if (tokens < 1 || tokens > limits.context_max || ceil_div(tokens, kBlock) != std::ssize(s.memory))
    return invalid_argument(name_of(s) + ": " + std::to_string(s.memory.size()) + " blocks for a memory of " +
                            std::to_string(tokens) + " positions");
  for (const uint32_t b : s.memory)
    if (b >= limits.kv_blocks)
      return invalid_argument(name_of(s) + ": KV block " + std::to_string(b) + " of " +
                              std::to_string(limits.kv_blocks) + " in its memory");
  return Status::ok();
}

Status check_filled(const PlanSequence& s, std::span<const uint32_t> memory, int64_t tokens,
                    std::span<const uint8_t> filled) {
  for (int64_t p = 0; p < tokens; p += kBlock)
    if (filled[memory[static_cast<size_t>(p / kBlock)]] < std::min(kBlock, tokens - p))
      return invalid_argument(name_of(s) + ": this cache does not hold the memory of its source; encode it again");
  return Status::ok();
}

}  // namespace

Status update_memory(const PlanSequence& s, TokenRange range, const EngineLimits& limits,
                     std::span<const uint8_t> filled, SequenceState& state) {
  if (!limits.encoder_decoder)
    return !s.source && s.memory.empty()
               ? Status::ok()
               : invalid_argument(name_of(s) + ": a source, which this model does not have: it has no encoder");
  const bool given = s.source || !s.memory.empty();
  const int64_t tokens = s.source ? range.count : given ? s.memory_tokens : state.memory_tokens;
  if (given) MOESTRO_RETURN_IF_ERROR(check_memory(s, tokens, limits));
  if (tokens == 0) return invalid_argument(name_of(s) + ": its source has not been encoded");
  if (!s.source) MOESTRO_RETURN_IF_ERROR(check_filled(s, given ? s.memory : state.memory, tokens, filled));
  if (given) state.memory = s.memory, state.memory_tokens = tokens;
  return Status::ok();
}

Status update_blocks(const PlanSequence& s, const EngineLimits& limits, std::vector<uint32_t>& table) {
  if (s.blocks.empty()) return Status::ok();
  if (s.blocks_first > table.size())
    return invalid_argument(name_of(s) + ": its block table has " + std::to_string(table.size()) +
                            " entries, the plan goes on at " + std::to_string(s.blocks_first));
  if (static_cast<int64_t>(s.blocks_first + s.blocks.size()) > ceil_div(limits.context_max, kBlock))
    return invalid_argument(name_of(s) + ": more KV blocks than the context of " + std::to_string(limits.context_max) +
                            " tokens has");
  for (const uint32_t b : s.blocks)
    if (b >= limits.kv_blocks)
      return invalid_argument(name_of(s) + ": KV block " + std::to_string(b) + " of " +
                              std::to_string(limits.kv_blocks));
  // What fits the cache at once, so that a sequence that grows allocates nothing. A window lets it go on; then it must.
  table.reserve(static_cast<size_t>(std::min(ceil_div(limits.context_max, kBlock), limits.kv_blocks)));
  table.resize(s.blocks_first);
  table.insert(table.end(), s.blocks.begin(), s.blocks.end());
  return Status::ok();
}

Status update_history(const StepPlan& plan, const PlanSequence& s, const EngineLimits& limits, SequenceState& state) {
  TokenHistory& history = state.history;
  if (s.history.empty()) return Status::ok();
  if (s.history_first != 0 && s.history_first != history.length())
    return invalid_argument(name_of(s) + ": its history has " + std::to_string(history.length()) +
                            " tokens, the plan goes on at " + std::to_string(s.history_first));
  if (s.history_first + static_cast<int64_t>(s.history.size()) > limits.context_max)
    return invalid_argument(name_of(s) + ": a history of more tokens than the context of " +
                            std::to_string(limits.context_max));
  std::span<const TokenId> known = s.history;
  const bool goes_on = known.back() == kSampledByParent;
  if (goes_on) known = known.first(known.size() - 1);
  for (const TokenId id : known)
    if (id < 0 || id >= limits.vocab)
      return invalid_argument(name_of(s) + ": its history has a token that is not of the vocabulary");
  const TokenId sampled = sampled_by_parent(plan, state);
  if (goes_on && sampled < 0) return sampled_nothing(plan, s);
  history.update(s.history_first, known, s.history_prompt);
  if (goes_on) history.update(history.length(), std::span(&sampled, 1), s.history_prompt);
  return Status::ok();
}

bool has_ended(const StepPlan& plan, const PlanSequence& s, TokenRange range, const SequenceState& state) {
  if (range.count == 0 || plan.tokens[range.first].id != kSampledByParent) return false;
  const TokenId sampled = sampled_by_parent(plan, state);
  return sampled >= 0 && std::find(s.ends.begin(), s.ends.end(), sampled) != s.ends.end();
}

Status check_sequence(const StepPlan& plan, const PlanSequence& s, TokenRange range, const SequenceState& state,
                      const EngineLimits& limits, std::span<const uint8_t> filled) {
  if (range.count == 0) return invalid_argument(name_of(s) + " has no tokens in this plan");
  MOESTRO_RETURN_IF_ERROR(check_sampling(s, limits.vocab));
  if (!s.score_targets.empty() && s.score_targets.size() != range.count)
    return invalid_argument(name_of(s) + ": " + std::to_string(s.score_targets.size()) + " score targets for " +
                            std::to_string(range.count) + " tokens");
  const int64_t first = plan.tokens[range.first].position;
  const int64_t last = first + range.count - 1;
  if (first < 0 || last >= limits.context_max)
    return invalid_argument(name_of(s) + ": positions " + std::to_string(first) + " to " + std::to_string(last) +
                            " are outside the context of " + std::to_string(limits.context_max));
  if (s.state_sum_from > last)
    return invalid_argument(name_of(s) + ": hidden states from position " + std::to_string(s.state_sum_from) +
                            " on, and its last in this plan is " + std::to_string(last));
  if (s.sample && s.sampling.penalises() && state.history.length() != last + 1)
    return invalid_argument(name_of(s) + ": penalties want the " + std::to_string(last + 1) +
                            " tokens before the one to sample, its history has " +
                            std::to_string(state.history.length()));
  if (last / kBlock >= static_cast<int64_t>(state.blocks.size()))
    return invalid_argument(name_of(s) + ": position " + std::to_string(last) + " has no KV block");
  for (uint32_t i = 0; i < range.count; ++i) {
    const PlanToken& t = plan.tokens[range.first + i];
    if (t.position != first + i) return invalid_argument(name_of(s) + ": positions are not consecutive");
    if (t.id == kSampledByParent && i == 0) {
      if (sampled_by_parent(plan, state) < 0) return sampled_nothing(plan, s);
    } else if (t.id < 0 || t.id >= limits.vocab) {
      return invalid_argument(name_of(s) + ": token id " + std::to_string(t.id) + " is outside the vocabulary of " +
                              std::to_string(limits.vocab));
    }
  }
  return check_written(s, state.blocks, first, limits.visible, filled);
}

Status check_states(const PlanSequence& s, int64_t first, int64_t last, std::span<const int64_t> tokens_in) {
  if (tokens_in.empty())
    return s.states.empty() ? Status::ok() : invalid_argument(name_of(s) + ": states, which this model does not have");
  const auto slot_text = [&](uint32_t slot) {
    return name_of(s) + ": state slot " + std::to_string(slot) + " of " + std::to_string(tokens_in.size());
  };
  if (first > 0) {
    if (s.state >= tokens_in.size()) return invalid_argument(slot_text(s.state));
    if (tokens_in[s.state] != first)
      return invalid_argument(slot_text(s.state) + " does not hold the state at position " + std::to_string(first) +
                              "; prefill the sequence again");
  }
  int64_t before = first;
  for (size_t i = 0; i < s.states.size(); ++i) {
    const StateWrite& w = s.states[i];
    if (w.slot >= tokens_in.size()) return invalid_argument(slot_text(w.slot));
    if (w.tokens <= first || w.tokens < before || w.tokens > last + 1)
      return invalid_argument(name_of(s) + ": states that are not of its tokens in this plan, in their order");
    for (size_t j = 0; j < i; ++j)
      if (s.states[j].slot == w.slot) return invalid_argument(slot_text(w.slot) + " is written twice");
    before = w.tokens;
  }
  if (before != last + 1) return invalid_argument(name_of(s) + ": its state after its last token has no slot");
  return Status::ok();
}

}  // namespace moestro::engine
