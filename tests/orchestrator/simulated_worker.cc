#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

constexpr uint64_t kChainBegin = 1469598103934665603ull, kSourceBegin = 1099511628211ull;
uint64_t chain_on(uint64_t chain, TokenId token) { return (chain ^ static_cast<uint64_t>(token)) * 1099511628211ull; }
TokenId said_after(uint64_t chain) {
  return static_cast<TokenId>((chain >> 20) % 97);
}  // 0, the end token, now and then
std::vector<double> state_after(uint64_t chain) {
  return {static_cast<double>(chain >> 40), static_cast<double>(chain % 1000), 1};
}

}  // namespace

namespace {
/// Of a target, what its source has left it with.
uint64_t begin_after(const Source& source) {
  if (source == nullptr) return kChainBegin;
  uint64_t chain = kSourceBegin;
  for (const TokenId t : *source) chain = chain_on(chain, t);
  return chain;
}
}  // namespace

TokenId next_token(const std::vector<TokenId>& tokens, const Source& source) {
  uint64_t chain = begin_after(source);
  for (TokenId t : tokens) chain = chain_on(chain, t);
  return said_after(chain);
}

float score_of(TokenId target, int64_t position) {
  return -0.01f * static_cast<float>(target) - static_cast<float>(position);
}

std::vector<double> state_of(const std::vector<TokenId>& tokens) {
  uint64_t chain = kChainBegin;
  for (TokenId t : tokens) chain = chain_on(chain, t);
  return state_after(chain);
}

std::vector<double> expected_embedding(const SequenceRequest& r) {
  if (r.pooling == Pooling::kNone) return {};
  if (r.pooling == Pooling::kLast) return state_of(r.prompt);
  std::vector<double> mean(3);
  for (size_t n = 1; n <= r.prompt.size(); ++n) {
    const std::vector<double> state = state_of({r.prompt.begin(), r.prompt.begin() + static_cast<std::ptrdiff_t>(n)});
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += state[i];
  }
  for (double& value : mean) value /= static_cast<double>(r.prompt.size());
  return mean;
}

std::vector<TokenId> expected_output(const SequenceRequest& r) {
  std::vector<TokenId> tokens = r.prompt;
  while (static_cast<int64_t>(tokens.size() - r.prompt.size()) < r.tokens_max) {
    tokens.push_back(next_token(tokens, r.source));
    if (tokens.back() == kEos && !r.ignore_eos) break;
  }
  return {tokens.begin() + static_cast<int64_t>(r.prompt.size()), tokens.end()};
}

SimulatedWorker::SimulatedWorker(WorkerLimits limits, TextOf text_of, SourceOf source_of)
    : limits_(limits),
      text_of_(std::move(text_of)),
      source_of_(std::move(source_of)),
      cache_((size_t{limits.kv_blocks} + limits.kv_host_blocks) * limits.kv_block_tokens),
      states_(limits.state_slots) {}

SimulatedWorker::Slot& SimulatedWorker::slot(SequenceId id, int64_t position) {
  const auto& table = tables_[id.value];
  const auto block = static_cast<size_t>(position / limits_.kv_block_tokens);
  EXPECT_LT(block, table.size()) << "position " << position << " has no block";
  return cache_[table.at(block) * limits_.kv_block_tokens + static_cast<size_t>(position % limits_.kv_block_tokens)];
}

SimulatedWorker::Slot& SimulatedWorker::memory_slot(SequenceId id, int64_t position) {
  const auto block = static_cast<size_t>(position / limits_.kv_block_tokens);
  return cache_[memories_[id.value].blocks.at(block) * limits_.kv_block_tokens +
                static_cast<size_t>(position % limits_.kv_block_tokens)];
}

bool SimulatedWorker::sees(int64_t position, int64_t query) const {
  return limits_.kv_window == 0 || position < limits_.kv_sinks || position > query - int64_t{limits_.kv_window};
}

void SimulatedWorker::release(const std::vector<ReleasedSequence>& released) {
  for (const ReleasedSequence& r : released) {
    tables_.erase(r.id.value);
    memories_.erase(r.id.value);
    histories_.erase(r.id.value);
    said_.erase(r.id.value);
  }
}

void SimulatedWorker::copy_blocks(const Plan& plan) {
  const size_t blocks = size_t{limits_.kv_blocks} + limits_.kv_host_blocks, block = limits_.kv_block_tokens;
  for (const KvCopy& c : plan.kv_copies) {
    EXPECT_LT(std::max(c.from, c.to), blocks);
    EXPECT_NE(c.from < limits_.kv_blocks, c.to < limits_.kv_blocks) << "a copy that is neither to host memory nor back";
    std::copy_n(cache_.begin() + static_cast<std::ptrdiff_t>(c.from * block), block,
                cache_.begin() + static_cast<std::ptrdiff_t>(c.to * block));
  }
}

void SimulatedWorker::take_in(const Plan& plan) {
  release(plan.released);
  size_t tokens = 0;
  for (const PlannedSequence& s : plan.sequences) {
    auto& table = tables_[s.id.value];
    EXPECT_GE(table.size(), s.blocks_first) << "a hole in the block table";
    table.resize(s.blocks_first);
    table.insert(table.end(), s.blocks.begin(), s.blocks.end());
    for (uint32_t b : s.blocks) EXPECT_LT(b, limits_.kv_blocks);
    EXPECT_LE(table.size(), (limits_.context_max + limits_.kv_block_tokens - 1) / limits_.kv_block_tokens);
    tokens += s.tokens.size();
    if (s.memory.empty()) continue;
    const auto positions = s.source ? std::ssize(s.tokens) : int64_t{s.memory_tokens};
    const int64_t block = limits_.kv_block_tokens;
    EXPECT_EQ(std::ssize(s.memory), (positions + block - 1) / block) << "blocks of a memory";
    for (uint32_t b : s.memory) EXPECT_LT(b, limits_.kv_blocks);
    memories_[s.id.value] = {s.memory, positions};
  }
  EXPECT_LE(tokens, limits_.step_tokens_max);
  EXPECT_LE(plan.sequences.size(), limits_.step_sequences_max);
}

void SimulatedWorker::take_history(const Work& work) {
  const PlannedSequence& s = *work.planned;
  auto& history = histories_[s.id.value];
  if (!s.history.empty()) {
    EXPECT_TRUE(s.history_first == 0 || s.history_first == history.size()) << "a hole in the history, or tokens twice";
    history.resize(s.history_first);
    history.insert(history.end(), s.history.begin(), s.history.end());
    if (history.back() == kSampledByParent) history.back() = said_[s.id.value].token;
  }
  if (s.sample && s.sampling.penalises()) {
    EXPECT_EQ(history, text_of_(s.id, static_cast<size_t>(s.first_position) + s.tokens.size()));
  }
}

/// What there is to compute of a sequence: nothing if it has ended with what the parent sampled, or if what it goes on
/// from is not there.
SimulatedWorker::Work SimulatedWorker::resolve(const Plan& plan, const PlannedSequence& s) {
  Work work{&s, s.tokens, true, Status::ok()};
  if (s.source) return work;
  if (s.tokens.front() == kSampledByParent) {
    EXPECT_EQ(s.tokens.size(), 1u);
    const Said& said = said_[s.id.value];
    if (said.token < 0 || said.plan != plan.parent)
      return {&s, {}, false, invalid_argument("the parent sampled nothing")};
    if (std::find(s.ends.begin(), s.ends.end(), said.token) != s.ends.end()) return {&s, {}, false, Status::ok()};
    work.tokens = {said.token};
  }
  if (s.first_position > 0 && slot(s.id, s.first_position - 1).token == -2)
    return {&s, {}, false, invalid_argument("follows what was lost")};
  return work;
}

/// No block that a sequence writes to is one that another sees.
void SimulatedWorker::check_writes(const std::vector<Work>& all) {
  std::map<uint32_t, uint64_t> writer;
  const int64_t block = limits_.kv_block_tokens;
  for (const Work& work : all) {
    const PlannedSequence& s = *work.planned;
    for (size_t k = 0; s.source && k < s.memory.size(); ++k)
      EXPECT_TRUE(writer.emplace(s.memory[k], s.id.value).second) << "two sequences write one block";
    if (s.source) continue;
    for (int64_t k = s.first_position / block;
         work.runs && k * block < s.first_position + static_cast<int64_t>(s.tokens.size()); ++k)
      EXPECT_TRUE(writer.emplace(tables_[s.id.value].at(static_cast<size_t>(k)), s.id.value).second)
          << "two sequences write one block";
  }
  std::map<uint32_t, uint64_t> state_writer;
  for (const Work& work : all) {
    for (const StateWrite& w : work.planned->states) {
      const bool first = !work.runs || state_writer.emplace(w.slot, work.planned->id.value).second;
      EXPECT_TRUE(first) << "a state slot is written twice";
    }
  }
  for (const Work& work : all) {
    const PlannedSequence& s = *work.planned;
    if (!work.runs || s.source) continue;
    for (const uint32_t b : memories_[s.id.value].blocks)
      EXPECT_FALSE(writer.contains(b)) << "a memory in use is written to";
    const auto writes = state_writer.find(s.state);
    EXPECT_TRUE(s.first_position == 0 || writes == state_writer.end() || writes->second == s.id.value)
        << "a state slot is written while another reads it";
    for (int64_t p = 0; p < s.first_position; ++p) {
      const auto found = writer.find(tables_[s.id.value].at(static_cast<size_t>(p / block)));
      if (!sees(p, s.first_position) || found == writer.end()) continue;
      EXPECT_EQ(found->second, s.id.value)
          << "block " << found->first << " is written while sequence " << s.id.value << " reads it";
    }
  }
}

/// What the planned tokens see is what their own sequence's tokens before them have left, whoever computed it.
void SimulatedWorker::check_reads(const Work& work) {
  const PlannedSequence& s = *work.planned;
  const auto end = static_cast<size_t>(s.first_position) + s.tokens.size();
  if (s.source) return;
  const std::vector<TokenId> tokens = text_of_(s.id, end);
  const Source source = source_of_(s.id);
  if (source != nullptr) {
    ASSERT_EQ(chain_of_memory(s.id), begin_after(source)) << "sequence " << s.id.value << " reads another memory";
  }
  uint64_t chain = begin_after(source);
  for (size_t p = 0; p < end; ++p) {
    chain = chain_on(chain, tokens[p]);
    if (!sees(static_cast<int64_t>(p), s.first_position)) continue;
    const Slot& there = slot(s.id, static_cast<int64_t>(p));
    ASSERT_EQ(there.token, tokens[p]) << "sequence " << s.id.value << " reads another token at " << p;
    ASSERT_EQ(there.chain, chain) << "sequence " << s.id.value << " reads what followed another prefix at " << p;
  }
}

SequenceOutcome SimulatedWorker::compute(PlanId plan, const Work& work) {
  const PlannedSequence& s = *work.planned;
  SequenceOutcome out;
  out.id = s.id;
  out.error = work.error;
  said_[s.id.value] = {plan, -1};
  if (!work.runs) return out;
  if (s.source) return encode(s);
  int64_t position = s.first_position;
  EXPECT_EQ(s.states.empty(), states_.empty());
  if (position > 0 && !states_.empty()) {
    const State& state = states_.at(s.state);
    EXPECT_EQ(state.tokens, position) << "sequence " << s.id.value << " goes on from another state";
    EXPECT_EQ(state.chain, slot(s.id, position - 1).chain) << "sequence " << s.id.value << ": of another prefix";
  }
  auto written = s.states.begin();
  const bool has_source = source_of_(s.id) != nullptr;
  uint64_t chain = position > 0 ? slot(s.id, position - 1).chain : has_source ? chain_of_memory(s.id) : kChainBegin;
  for (size_t i = 0; i < s.tokens.size(); ++i, ++position) {
    chain = chain_on(chain, work.tokens[i]);
    slot(s.id, position) = {work.tokens[i], chain};
    for (; written != s.states.end() && written->tokens == position + 1; ++written)
      states_.at(written->slot) = {position + 1, chain};
    if (!s.score_targets.empty()) out.scores.push_back({score_of(s.score_targets[i], position), {}});
    if (s.state_sum_from < 0 || position < s.state_sum_from) continue;
    const std::vector<double> state = state_after(chain);
    out.state_sum.resize(state.size());
    std::transform(state.begin(), state.end(), out.state_sum.begin(), out.state_sum.begin(), std::plus<>());
  }
  EXPECT_TRUE(written == s.states.end()) << "states that are not of its tokens";
  if (!s.sample) return out;
  out.sampled.push_back({said_after(chain), {}});
  said_[s.id.value].token = said_after(chain);
  return out;
}

SequenceOutcome SimulatedWorker::encode(const PlannedSequence& s) {
  EXPECT_TRUE(!s.sample && s.blocks.empty() && s.first_position == 0);
  const Source source = source_of_(s.id);
  EXPECT_TRUE(source != nullptr && s.tokens == *source) << "a source is planned whole";
  uint64_t chain = kSourceBegin;
  int64_t position = 0;
  for (const TokenId t : s.tokens) memory_slot(s.id, position++) = {t, chain = chain_on(chain, t)};
  SequenceOutcome out;
  out.id = s.id;
  return out;
}

/// Of all that lies there.
uint64_t SimulatedWorker::chain_of_memory(SequenceId id) {
  uint64_t chain = kSourceBegin;
  for (int64_t i = 0; i < memories_[id.value].tokens; ++i) {
    const Slot& there = memory_slot(id, i);
    chain = chain_on(chain, there.token);
    EXPECT_EQ(there.chain, chain) << "a memory of several sources";
  }
  return chain;
}

PlanOutcome SimulatedWorker::compute(const Plan& plan) {
  if (begin(plan)) return finish(plan);
  PlanOutcome outcome;
  outcome.plan = plan.id;
  outcome.error = unavailable("its parent failed");
  return outcome;
}

bool SimulatedWorker::begin(const Plan& plan) {
  copy_blocks(plan);
  if (const PlanId before = std::exchange(done_, PlanId()); plan.parent.value != 0 && plan.parent != before)
    return false;
  take_in(plan);
  return true;
}

PlanOutcome SimulatedWorker::finish(const Plan& plan, const std::set<uint64_t>& left) {
  PlanOutcome outcome;
  outcome.plan = plan.id;
  std::vector<Work> all;
  for (const PlannedSequence& s : plan.sequences) {
    all.push_back(resolve(plan, s));
    if (all.back().runs) take_history(all.back());
  }
  check_writes(all);
  for (const Work& work : all) outcome.sequences.push_back(compute(plan.id, work));
  for (const Work& work : all)
    if (work.runs && !left.contains(work.planned->id.value)) check_reads(work);
  done_ = plan.id;
  return outcome;
}

void SimulatedWorker::spoil(const PlannedSequence& s) {
  for (int64_t i = 0; i < std::ssize(s.tokens); ++i)
    (s.source ? memory_slot(s.id, i) : slot(s.id, s.first_position + i)) = {-2, 0};
  for (const StateWrite& w : s.states) states_.at(w.slot) = {-1, 0};
}

PlanOutcome SimulatedWorker::compute_all_but(size_t broken, const Plan& plan) {
  PlanOutcome outcome = compute(plan);
  if (!outcome.error.is_ok()) return outcome;
  spoil(plan.sequences[broken]);
  said_[plan.sequences[broken].id.value].token = -1;
  outcome.sequences[broken] = {plan.sequences[broken].id, {}, {}, internal_error(kBrokeDown)};
  return outcome;
}

PlanOutcome SimulatedWorker::break_down(const Plan& plan) {
  PlanOutcome outcome;
  outcome.plan = plan.id;
  outcome.error = internal_error(kBrokeDown);
  copy_blocks(plan);
  const PlanId before = std::exchange(done_, PlanId());
  if (plan.parent.value != 0 && plan.parent != before) return outcome;
  take_in(plan);
  for (const PlannedSequence& s : plan.sequences) spoil(s);
  return outcome;
}

}  // namespace moestro::orchestrator
