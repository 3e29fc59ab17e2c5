// How the scheduler forms a worker's next plan.

#include <algorithm>

#include "common/check.h"
#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

namespace {
constexpr Nanos kLongStep = std::chrono::milliseconds(10);
}

bool Scheduler::may_plan(const Worker& worker) const {
  if (worker.running.empty() || worker.flights.size() >= options_.steps_in_flight) return false;
  if (worker.flights.empty()) return true;
  // What overtakes is short, and behind a long step that may be overtaken nothing else is to be under way.
  const Flight& last = worker.flights.back();
  if (last.overtakes) return false;
  if (may_be_overtaken(worker, last) && last.tokens > worker.step_times.tokens_within(kLongStep)) return false;
  // Whoever comes beside a batch is to be in the very next step; against a long one, the wire between two is nothing.
  if (worker.step_times.usual() >= kLongStep && worker.batch_sequences() > 0) return false;
  // A sequence that runs alone does so on a worker that has nothing else to fail at; also if it has left since.
  return !last.lost && !last.alone &&
         std::none_of(worker.running.begin(), worker.running.end(), [](const Sequence* s) { return s->alone(); });
}

void Scheduler::make_plans() {
  mask_work_ = options_.mask_work;
  masks_wait_ = false;
  for (const auto& [id, worker] : workers_) {
    while (may_plan(*worker)) {
      Flight flight;
      Plan plan = form_plan(*worker, flight, /*overtakes=*/false);
      if (plan.sequences.empty() && may_plan(*worker))
        plan = form_plan(*worker, flight, false);  // whose turn it was had to go: the others go on
      if (plan.sequences.empty()) break;
      send_plan(*worker, std::move(flight), std::move(plan));
    }
    if (is_overtaken(*worker)) overtake(*worker);
  }
}

void Scheduler::send_plan(Worker& worker, Flight flight, Plan plan) {
  worker.flights.push_back(std::move(flight));
  actions_.push_back(SendPlan{worker.id, std::move(plan)});
}

/// A worker that has nothing more to do hears what it may forget.
void Scheduler::make_releases() {
  for (const auto& [id, worker] : workers_)
    if (worker->flights.empty() && !worker->released.empty())
      actions_.push_back(SendRelease{id, std::exchange(worker->released, {})});
}

/// Tokens of `s` that can be computed next: those that are known, or the one that the plan before samples.
int64_t Scheduler::plannable(const Worker& worker, const Sequence& s) const {
  if (s.awaited == 0) return s.length() - s.planned();
  const bool last = s.expected() - s.prompt() >= s.request.tokens_max || s.expected() >= worker.length_max(s);
  const bool hangs_on_it = s.request.constraint && !s.request.constraint->allowed_ahead();
  return last || hangs_on_it ? 0 : s.expected() - s.planned();
}

/// Makes the sequence's block table cover `tokens`, sending back younger sequences that are not in this plan yet if it
/// must. False if `s` is the youngest of those and had to go itself, or has a plan under way: that may give blocks
/// back, and nobody has to go for a head start.
bool Scheduler::make_room(Worker& worker, Sequence& s, int64_t tokens, PlanId plan) {
  while (!grow(worker, s, tokens)) {
    if (s.in_flight > 0) return false;
    Sequence* youngest = &s;
    for (Sequence* other : worker.running)
      if (other->last_plan != plan &&
          std::pair(other->of_batch(), other->admission) > std::pair(youngest->of_batch(), youngest->admission))
        youngest = other;
    preempt(worker, *youngest);
    if (youngest == &s) return false;
  }
  return true;
}

/// Blocks that plans under way compute.
Scheduler::KeySet Scheduler::coming_blocks(const Worker& worker) {
  KeySet coming;
  for (const Flight& flight : worker.flights)
    for (const Part& part : flight.parts)
      if (part.sequence != nullptr) note_coming(worker, *part.sequence, part.first + part.tokens, coming);
  return coming;
}

/// Whether the next block of `s` is one that a plan computes for another sequence: then `s` waits a step and shares it.
bool Scheduler::another_computes(const Worker& worker, Sequence& s, const KeySet& coming) {
  const int64_t block = worker.kv.block_tokens(), next = s.computed / block;
  if (coming.empty() || !shares_blocks(s) || s.computed % block != 0 || next >= s.reusable_max() / block) return false;
  return coming.contains(link(worker, s, next).key);
}

void Scheduler::note_coming(const Worker& worker, Sequence& s, int64_t end, KeySet& coming) {
  if (!shares_blocks(s)) return;
  const int64_t block = worker.kv.block_tokens(), known = std::min(end, s.length());
  for (int64_t k = s.computed / block; k < known / block; ++k) coming.insert(link(worker, s, k).key);
}

Plan Scheduler::form_plan(Worker& worker, Flight& flight, bool overtakes) {
  Plan plan;
  flight.plan = plan.id = PlanId{next_plan_++};
  flight.overtakes = plan.overtakes = overtakes;
  if (!worker.flights.empty() && !overtakes) plan.parent = worker.flights.back().plan;
  int64_t budget = step_tokens(worker);
  if (overtakes) budget = std::min<int64_t>(budget, worker.limits.overtaking_tokens_max);
  const PlanningOrder order = overtakes ? overtaking_order(worker) : planning_order(worker);
  // What the plan at hand computes for others is not waited for by one that overtakes it.
  KeySet coming = overtakes ? KeySet() : coming_blocks(worker);
  for (size_t i = 0; i < order.sequences.size(); ++i) {
    Sequence* const s = order.sequences[i];
    const bool prompt = s->reads_prompt();
    if (i == order.fixed) budget = elastic_budget(worker, static_cast<int64_t>(plan.sequences.size()), budget, prompt);
    if (budget <= 0 || plan.sequences.size() >= worker.limits.step_sequences_max) break;
    if (s->worker == nullptr) continue;  // sent back to make room for an older one
    if (s->encodes()) {
      if (auto part = plan_source(worker, *s, budget, plan)) flight.parts.push_back(std::move(*part));
      continue;
    }
    if (s->in_flight == 0) {
      reuse(worker, *s, reusable_blocks(worker, *s));  // what others have computed since
      if (another_computes(worker, *s, coming)) continue;
    }
    const int64_t first = s->planned();
    const int64_t tokens = std::min({budget, plannable(worker, *s), worker.window.chunk_max(first)});
    if (tokens <= 0) continue;  // its next token hangs on what is under way
    if (first + tokens == s->expected() && !know_allowed(*s)) continue;
    if (!make_room(worker, *s, first + tokens, plan.id)) continue;
    if (overtakes && others_write(worker, *s)) continue;
    note_coming(worker, *s, first + tokens, coming);
    flight.parts.push_back(plan_chunk(worker, *s, tokens, plan));
    budget -= tokens;
  }
  if (!plan.sequences.empty() && !overtakes) {
    flight.alone = flight.parts.front().sequence->alone();
    note_source_left_out(worker, flight);
    plan.released = std::exchange(worker.released, {});
    plan.kv_copies = worker.kv.take_copies();
    count_copies(worker, plan.kv_copies);
  }
  charge(worker, flight);
  return plan;
}

void Scheduler::count_copies(const Worker& worker, std::span<const KvCopy> copies) {
  for (const KvCopy& c : copies) (c.from < worker.kv.total() ? moved_out_ : moved_in_) += worker.kv.block_tokens();
}

/// What penalties need to know, as far as the worker does not.
void Scheduler::add_history(Sequence& s, PlannedSequence& p) {
  if (!p.sampling.penalises()) return;
  p.history_first = static_cast<uint32_t>(s.history_sent);
  p.history_prompt = static_cast<uint32_t>(s.prompt());
  p.history.assign(s.tokens.begin() + std::min(s.history_sent, s.length()), s.tokens.end());
  if (s.awaited > 0) p.history.push_back(kSampledByParent);
  s.history_sent = s.expected();
}

/// The tokens that its constraint allows next, into `s.allowed`. False if that is not known yet, or cannot be said:
/// then the sequence has failed.
bool Scheduler::know_allowed(Sequence& s) {
  if (!s.request.constraint || s.allowed || s.awaited > 0) return true;  // awaited: allowed_ahead() has it
  auto mask = s.request.constraint->allowed_within(mask_work_);
  if (!mask.is_ok()) return fail(s, mask.status()), false;
  if (!*mask) return masks_wait_ = true, false;
  s.allowed = std::move(**mask);
  return true;
}

Scheduler::Part Scheduler::plan_chunk(Worker& worker, Sequence& s, int64_t tokens, Plan& plan) {
  const int64_t block = worker.kv.block_tokens(), first = s.planned(), end = first + tokens;
  for (int64_t k = first / block; k * block < end; ++k)
    MOESTRO_CHECK(worker.kv.writable(s.blocks[static_cast<size_t>(k)]),
                  "a plan writes to a KV block that others can read");
  PlannedSequence p;
  p.id = s.request.id;
  p.first_position = first;
  p.tokens.assign(s.tokens.begin() + first, s.tokens.begin() + std::min(end, s.length()));
  if (end > s.length()) {
    p.tokens.push_back(kSampledByParent);
    p.ends = ends_of(s);
  }
  p.blocks_first = s.blocks_sent;
  if (s.blocks_sent == 0) p.request_id = s.request.request_id;
  if (s.blocks_sent == 0 && s.memory != nullptr)
    p.memory = s.memory->blocks, p.memory_tokens = static_cast<uint32_t>(s.source());
  for (auto b = s.blocks.begin() + s.blocks_sent; b != s.blocks.end(); ++b)
    p.blocks.push_back(*b == kNoBlock ? 0 : *b);  // read by nobody
  s.blocks_sent = static_cast<uint32_t>(s.blocks.size());
  p.sample = s.samples() && end == s.expected();
  p.sampling = s.request.sampling;
  p.bias = s.request.bias;
  p.text_ends = s.request.text_ends;
  p.low_share_max = s.request.low_share_max;
  p.counted = s.reached;
  if (p.sample) add_history(s, p);
  if (p.sample && s.request.constraint) p.allowed = s.awaited > 0 ? *s.request.constraint->allowed_ahead() : s.allowed;
  if (s.request.score_top >= 0 && first < s.prompt() - 1) {
    p.score_top = s.request.score_top;
    for (int64_t i = first; i < end; ++i) {
      const bool wanted = i >= s.scored && i + 1 < s.prompt();
      p.score_targets.push_back(wanted ? s.tokens[static_cast<size_t>(i + 1)] : -1);
    }
  }
  if (s.pools(end)) p.state_sum_from = std::max(first, s.pooled);
  Part part{.id = s.request.id, .sequence = &s, .first = first, .tokens = tokens, .samples = p.sample};
  plan_states(worker, s, part, p);
  s.in_flight += tokens;
  s.awaited += p.sample ? 1 : 0;
  s.last_plan = plan.id;
  plan.sequences.push_back(std::move(p));
  return part;
}

}  // namespace moestro::orchestrator
