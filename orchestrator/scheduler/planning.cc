// How the scheduler forms a worker's next plan.

#include <algorithm>

#include "common/check.h"
#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

void Scheduler::make_plans() {
  for (const auto& [id, worker] : workers_) {
    if (worker->plan.has_value() || worker->running.empty()) continue;
    Plan plan = form_plan(*worker);
    if (plan.sequences.empty()) continue;
    worker->plan = plan.id;
    worker->planned.clear();
    for (const PlannedSequence& s : plan.sequences) worker->planned.push_back(s.id);
    actions_.push_back(SendPlan{id, std::move(plan)});
  }
}

/// Makes the sequence's block table cover `tokens`, sending back younger sequences that are not in the plan yet if it must. False if `s`
/// is the youngest of those and had to go itself.
bool Scheduler::make_room(Worker& worker, Sequence& s, int64_t tokens) {
  while (!grow(worker, s, tokens)) {
    Sequence* youngest = &s;
    for (Sequence* other : worker.running)
      if (other->in_flight == 0 && std::pair(other->request.background, other->admission) > std::pair(youngest->request.background, youngest->admission))
        youngest = other;
    send_back(worker, *youngest);
    if (youngest == &s) return false;
  }
  return true;
}

/// Whether the next block of `s` is one that this plan computes for another sequence: then `s` waits a step and shares it.
bool Scheduler::another_computes(const Worker& worker, Sequence& s, const KeySet& coming) {
  const int64_t block = worker.kv.block_tokens(), next = s.computed / block;
  if (coming.empty() || s.computed % block != 0 || next >= s.reusable_max() / block) return false;
  return coming.contains(link(worker, s, next).key);
}

void Scheduler::note_coming(const Worker& worker, Sequence& s, int64_t end, KeySet& coming) {
  if (!options_.prefix_cache) return;
  const int64_t block = worker.kv.block_tokens();
  for (int64_t k = s.computed / block; k < end / block; ++k) coming.insert(link(worker, s, k).key);
}

Plan Scheduler::form_plan(Worker& worker) {
  Plan plan;
  plan.id = PlanId{next_plan_++};
  int64_t budget = std::min<int64_t>(options_.step_tokens, worker.limits.step_tokens_max);
  std::vector<Sequence*> order = worker.running;
  // Decodes before prompts, each in order of admission; prompts of batches last.
  const auto prompts = std::stable_partition(order.begin(), order.end(), [](const Sequence* s) { return s->length() - s->computed == 1; });
  std::stable_partition(prompts, order.end(), [](const Sequence* s) { return !s->request.background; });
  const auto suspect = std::find_if(order.begin(), order.end(), [](const Sequence* s) { return s->alone; });
  if (suspect != order.end()) order = {*suspect};
  KeySet coming;
  for (Sequence* s : order) {
    if (budget == 0 || plan.sequences.size() >= worker.limits.step_sequences_max) break;
    if (s->worker == nullptr) continue;  // sent back to make room for an older one
    reuse(worker, *s, reusable_blocks(worker, *s));  // what others have computed since
    if (another_computes(worker, *s, coming)) continue;
    const int64_t tokens = std::min({budget, s->length() - s->computed, worker.window.chunk_max(s->computed)});
    if (s->computed + tokens == s->length() && !know_allowed(*s)) continue;
    if (!make_room(worker, *s, s->computed + tokens)) continue;
    note_coming(worker, *s, s->computed + tokens, coming);
    plan_chunk(worker, *s, tokens, plan);
    budget -= tokens;
  }
  if (!plan.sequences.empty()) plan.released = std::exchange(worker.released, {});
  return plan;
}

/// What penalties need to know, as far as the worker does not.
void Scheduler::add_history(Sequence& s, PlannedSequence& p) {
  if (!p.sampling.penalises()) return;
  p.history_first = static_cast<uint32_t>(s.history_sent);
  p.history_prompt = static_cast<uint32_t>(s.prompt());
  p.history.assign(s.tokens.begin() + s.history_sent, s.tokens.end());
  s.history_sent = s.length();
}

/// The tokens that its constraint allows next, into `s.allowed`. False if that cannot be said: then the sequence has failed.
bool Scheduler::know_allowed(Sequence& s) {
  if (!s.request.constraint || s.allowed) return true;
  auto mask = s.request.constraint->allowed();
  if (!mask.is_ok()) return fail(s, mask.status()), false;
  s.allowed = std::move(*mask);
  return true;
}

void Scheduler::plan_chunk(const Worker& worker, Sequence& s, int64_t tokens, Plan& plan) {
  const int64_t block = worker.kv.block_tokens();
  for (int64_t k = s.computed / block; k * block < s.computed + tokens; ++k)
    MOESTRO_CHECK(worker.kv.writable(s.blocks[static_cast<size_t>(k)]), "a plan writes to a KV block that others can read");
  PlannedSequence p;
  p.id = s.request.id;
  p.first_position = s.computed;
  p.tokens.assign(s.tokens.begin() + s.computed, s.tokens.begin() + s.computed + tokens);
  p.blocks_first = s.blocks_sent;
  for (auto b = s.blocks.begin() + s.blocks_sent; b != s.blocks.end(); ++b) p.blocks.push_back(*b == kNoBlock ? 0 : *b);  // read by nobody
  s.blocks_sent = static_cast<uint32_t>(s.blocks.size());
  p.sample = s.samples() && s.computed + tokens == s.length();
  p.sampling = s.request.sampling;
  if (p.sample) add_history(s, p);
  if (p.sample) p.allowed = s.allowed;
  if (s.request.score_top >= 0 && s.computed < s.prompt() - 1) {
    p.score_top = s.request.score_top;
    for (int64_t i = s.computed; i < s.computed + tokens; ++i) {
      const bool wanted = i >= s.scored && i + 1 < s.prompt();
      p.score_targets.push_back(wanted ? s.tokens[static_cast<size_t>(i + 1)] : -1);
    }
  }
  s.in_flight = tokens;
  plan.sequences.push_back(std::move(p));
}

}  // namespace moestro::orchestrator
