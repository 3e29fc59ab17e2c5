#include "services/cli/bench/workload.h"

#include <algorithm>

#include "services/worker/engine/philox.h"

namespace moestro::cli {
namespace {

constexpr uint64_t kSeed = 7;

}  // namespace

Workload::Workload(engine::Engine& engine, const Clock& clock, int64_t sequences, int64_t length, int64_t source)
    : engine_(engine), clock_(clock), sequences_(sequences), source_(source),
      memory_each_(ceil_div(source, kernels::kKvBlockTokens)),
      blocks_each_(memory_each_ + ceil_div(length, kernels::kKvBlockTokens)) {
  engine_.forget_all();
}

void Workload::begin_step() {
  plan_.id = PlanId(next_plan_++);
  plan_.model = engine_.limits().model;
  plan_.sequences.clear();
  plan_.tokens.clear();
  positions_.clear();
}

engine::PlanSequence& Workload::add_sequence(int64_t sequence) {
  engine::PlanSequence& s = plan_.sequences.emplace_back();
  s.id = SequenceId(static_cast<uint64_t>(sequence));
  return s;
}

/// Of the last sequence that was added.
void Workload::add_token(int64_t sequence, int64_t position) {
  const double u = engine::uniform_at(kSeed, static_cast<uint32_t>(sequence), static_cast<uint32_t>(position));
  plan_.tokens.push_back({static_cast<uint32_t>(plan_.sequences.size() - 1), static_cast<int32_t>(position),
                          static_cast<TokenId>(u * static_cast<double>(engine_.spec().vocab))});
}

void Workload::add_source(int64_t sequence) {
  engine::PlanSequence& s = add_sequence(sequence);
  s.source = true;
  for (int64_t i = 0; i < memory_each_; ++i) s.memory.push_back(static_cast<uint32_t>(sequence * blocks_each_ + i));
  for (int64_t p = 0; p < source_; ++p) {
    add_token(sequence, p);
    positions_.push_back(source_ - 1);  // each sees all
  }
}

void Workload::add(int64_t sequence, int64_t first, int64_t tokens, bool sample) {
  engine::PlanSequence& s = add_sequence(sequence);
  s.sample = sample;
  if (first == 0)
    for (int64_t i = memory_each_; i < blocks_each_; ++i)
      s.blocks.push_back(static_cast<uint32_t>(sequence * blocks_each_ + i));
  if (engine_.limits().state_slots > 0) {  // one each
    s.state = static_cast<uint32_t>(sequence);
    s.states = {{first + tokens, s.state}};
  }
  for (int64_t p = first; p < first + tokens; ++p) {
    add_token(sequence, p);
    positions_.push_back(p);
  }
}

Result<StepCost> Workload::run_step() {
  const Nanos begin = clock_.now();
  MOESTRO_RETURN_IF_ERROR(engine_.step(plan_, outcome_));
  const double seconds = std::chrono::duration<double>(clock_.now() - begin).count();
  experts_.clear();
  for (const engine::SequenceOutcome& s : outcome_.sequences) {
    MOESTRO_RETURN_IF_ERROR(s.status);
    for (const auto& count : s.activations) experts_.emplace(count.layer.value, count.expert.value);
  }
  const auto logit_rows =
      std::count_if(plan_.sequences.begin(), plan_.sequences.end(), [](const auto& s) { return s.sample; });
  StepCost cost = step_cost(engine_.spec(), engine_.weight_traffic(), positions_, logit_rows,
                            static_cast<int64_t>(experts_.size()), engine_.limits().visible,
                            {.sources = plan_.sequences.front().source, .memory = source_});
  cost.seconds = seconds;
  cost.stalled_seconds = 1e-6 * static_cast<double>(outcome_.stall_us);
  cost.host_experts = static_cast<double>(outcome_.device.host_experts);
  return cost;
}

/// As many to a step as it takes whole.
Result<StepCost> Workload::sources() {
  const engine::EngineLimits& limits = engine_.limits();
  StepCost total;
  begin_step();
  for (int64_t s = 0; s < sequences_; ++s) {
    add_source(s);
    const bool room = static_cast<int64_t>(plan_.tokens.size()) + source_ <= limits.step_tokens_max &&
                      static_cast<int64_t>(plan_.sequences.size()) < limits.step_sequences_max;
    if (room && s + 1 < sequences_) continue;
    MOESTRO_ASSIGN_OR_RETURN(const StepCost cost, run_step());
    total += cost;
    begin_step();
  }
  position_ = 0;
  return total;
}

Result<StepCost> Workload::prompts(int64_t tokens) {
  if (source_ > 0) return sources();
  const engine::EngineLimits& limits = engine_.limits();
  StepCost total;
  begin_step();
  const auto flush = [&]() -> Status {
    if (plan_.tokens.empty()) return Status::ok();
    MOESTRO_ASSIGN_OR_RETURN(const StepCost cost, run_step());
    total += cost;
    begin_step();
    return Status::ok();
  };
  for (int64_t s = 0; s < sequences_; ++s)
    for (int64_t first = 0; first < tokens;) {
      const int64_t room = limits.step_tokens_max - static_cast<int64_t>(plan_.tokens.size());
      const int64_t n = std::min(room, tokens - first);
      add(s, first, n, first + n == tokens);
      first += n;
      if (n == room || static_cast<int64_t>(plan_.sequences.size()) == limits.step_sequences_max)
        MOESTRO_RETURN_IF_ERROR(flush());
    }
  MOESTRO_RETURN_IF_ERROR(flush());
  position_ = tokens;
  return total;
}

Result<StepCost> Workload::decode() {
  begin_step();
  for (int64_t s = 0; s < sequences_; ++s) add(s, position_, 1, true);
  ++position_;
  return run_step();
}

}  // namespace moestro::cli
