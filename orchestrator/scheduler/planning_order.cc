// Whose tokens go into a worker's next plan first, and to whose account they go.

#include <algorithm>
#include <tuple>

#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

/// Decodes before prompts, in order of admission. Of the prompts those of batches come last, unless it is their turn;
/// within a class those of the flow that was served least come first.
std::vector<Scheduler::Sequence*> Scheduler::planning_order(Worker& worker) {
  if (const auto suspect = suspects_turn(worker)) return *suspect;
  std::vector<Sequence*> order;
  std::copy_if(worker.running.begin(), worker.running.end(), std::back_inserter(order),
               [](const Sequence* s) { return !s->alone(); });
  const auto prompts = std::stable_partition(order.begin(), order.end(),
                                             [](const Sequence* s) { return s->expected() - s->planned() == 1; });
  const bool batch_first = worker.batch_turn.due(step_tokens(worker));
  const auto rank = [&](const Sequence* s) { return std::tuple(s->of_batch() != batch_first, s->flow->served); };
  std::stable_sort(prompts, order.end(), [&](const Sequence* a, const Sequence* b) { return rank(a) < rank(b); });
  return order;
}

int64_t Scheduler::step_tokens(const Worker& worker) const {
  return std::min<int64_t>(options_.step_tokens, worker.limits.step_tokens_max);
}

/// Of the tokens that a step has left, those that prompts may take beside so many decodes: no more than keep the time
/// per output token. A block's worth they always get, so that they come to an end.
int64_t Scheduler::prompt_budget(const Worker& worker, int64_t decodes, int64_t left) const {
  if (options_.tpot_target == Nanos(0) || decodes == 0) return left;
  const int64_t within = worker.step_times.tokens_within(options_.tpot_target) - decodes;
  return std::min(left, std::max<int64_t>(within, worker.limits.kv_block_tokens));
}

/// The most sequences that a worker is given: as many as decode together within the time per output token.
size_t Scheduler::places(const Worker& worker) const {
  const size_t most = worker.limits.step_sequences_max;
  if (options_.tpot_target == Nanos(0)) return most;
  return std::min(most, static_cast<size_t>(worker.step_times.tokens_within(options_.tpot_target)));
}

/// What is computed again, because its sequence was sent back or its worker died, is nobody's.
void Scheduler::charge(Worker& worker, const Flight& flight) {
  if (flight.parts.empty()) return;
  int64_t of_batches = 0, all = 0;
  bool others_read = false;
  for (const Part& part : flight.parts) {
    Sequence& s = *part.sequence;
    const int64_t end = part.first + part.tokens;
    s.flow->served += std::clamp<int64_t>(end - s.charged, 0, part.tokens);
    s.charged = std::max(s.charged, end);
    if (s.of_batch()) of_batches += part.tokens;
    else others_read = others_read || part.tokens > 1;
    all += part.tokens;
  }
  const bool batches_wait = std::any_of(worker.running.begin(), worker.running.end(), [](const Sequence* s) {
    return s->of_batch() && s->expected() - s->planned() > 1;
  });
  worker.step_times.planned(flight.plan, all);
  worker.batch_turn.planned(batches_wait && others_read, step_tokens(worker), of_batches);
}

}  // namespace moestro::orchestrator
