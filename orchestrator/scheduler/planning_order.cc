// Whose tokens go into a worker's next plan first, and to whose account they go.

#include <algorithm>
#include <tuple>
#include <utility>

#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

namespace {
/// How many times as long as a usual step one of more tokens may last.
constexpr double kLonger = 2, kLongerBesideDecodes = 1.25;
}  // namespace

/// Decodes before prompts, in order of admission. Of the prompts those of batches come last, unless it is their turn;
/// within a class those of the flow that was served least come first.
Scheduler::PlanningOrder Scheduler::planning_order(Worker& worker) {
  const auto decodes = [](const Sequence* s) { return s->decodes(); };
  PlanningOrder order;
  if (const auto suspect = suspects_turn(worker)) {
    order.sequences = *suspect;
    order.fixed = static_cast<size_t>(std::ranges::count_if(order.sequences, decodes));
    return order;
  }
  std::ranges::copy_if(worker.running, std::back_inserter(order.sequences),
                       [](const Sequence* s) { return !s->alone(); });
  const auto prompts = std::stable_partition(order.sequences.begin(), order.sequences.end(), decodes);
  const bool batch_first = worker.batch_turn.due(step_tokens(worker));
  const auto rank = [&](const Sequence* s) { return std::tuple(s->of_batch() != batch_first, s->flow->served); };
  std::stable_sort(prompts, order.sequences.end(),
                   [&](const Sequence* a, const Sequence* b) { return rank(a) < rank(b); });
  order.fixed = static_cast<size_t>(prompts - order.sequences.begin());
  if (options_.tpot_target > Nanos(0) && worker.readers() > 0) share_step(worker, order, order.fixed);
  lead_with_source(worker, order);
  return order;
}

/// Somebody reads along, so the step is to be short: of its decodes those of batches take turns. A few are in it in any
/// case, the others after the prompts that somebody waits for.
void Scheduler::share_step(const Worker& worker, PlanningOrder& order, size_t decodes) const {
  const auto first = order.sequences.begin(), prompts = first + static_cast<std::ptrdiff_t>(decodes);
  const auto of_batches = std::stable_partition(first, prompts, [](const Sequence* s) { return !s->of_batch(); });
  std::stable_sort(of_batches, prompts,
                   [](const Sequence* a, const Sequence* b) { return a->last_plan.value < b->last_plan.value; });
  const int64_t within = worker.step_times.tokens_within(options_.tpot_target);
  const int64_t kept = std::clamp<int64_t>(within / (options_.interactive_weight + 1), 1, within);
  const auto others = of_batches + std::min<std::ptrdiff_t>(prompts - of_batches, kept);
  auto read_now = order.sequences.end();  // the end of the prompts that are not of batches
  while (read_now != prompts && (*(read_now - 1))->of_batch()) --read_now;
  order.fixed = static_cast<size_t>(others - first);
  std::rotate(others, prompts, read_now);
}

int64_t Scheduler::step_tokens_max(const Worker& worker) const {
  return std::min<int64_t>(options_.step_tokens, worker.limits.step_tokens_max);
}

/// Whoever comes waits for the step that runs.
int64_t Scheduler::step_tokens(const Worker& worker) const {
  const int64_t most = step_tokens_max(worker);
  if (options_.usual_step == 0 || most <= options_.usual_step) return most;
  return std::min(most, worker.step_growth.tokens(kLonger));
}

/// The tokens of a step that keeps the time per output token. Without a target: those that decode are to notice little
/// of steps that are larger than usual.
int64_t Scheduler::tokens_beside_decodes(const Worker& worker) const {
  if (options_.tpot_target > Nanos(0)) return worker.step_times.tokens_within(options_.tpot_target);
  return options_.usual_step == 0 ? step_tokens_max(worker) : worker.step_growth.tokens(kLongerBesideDecodes);
}

/// Of the tokens that a step has left, those that it may take beside so many decodes: no more than keep the time per
/// output token, if anybody reads along. A prompt that is reached gets a block's worth, so that it comes to an end.
int64_t Scheduler::elastic_budget(const Worker& worker, int64_t decodes, int64_t left, bool prompt) const {
  if (decodes == 0 || worker.readers() == 0) return left;
  const int64_t within = tokens_beside_decodes(worker) - decodes;
  return std::min(left, std::max<int64_t>(within, prompt ? worker.limits.kv_block_tokens : 0));
}

/// More sequences that a worker may be given: those whose answers are read as they come only as many as decode together
/// within the time per output token.
size_t Scheduler::room_for(const Worker& worker, bool background) const {
  const size_t most = worker.limits.step_sequences_max;
  size_t room = most - std::min(most, worker.running.size());
  if (worker.has_states()) room = std::min<size_t>(room, worker.states.available());
  return background ? room : std::min(room, room_for_readers(worker));
}

size_t Scheduler::room_for_readers(const Worker& worker) const {
  if (options_.tpot_target == Nanos(0)) return SIZE_MAX;
  const auto most = static_cast<size_t>(worker.step_times.tokens_within(options_.tpot_target));
  return most - std::min(most, worker.readers());
}

/// What is computed again, because its sequence was sent back or its worker died, is nobody's.
void Scheduler::charge(Worker& worker, Flight& flight) {
  if (flight.parts.empty()) return;
  int64_t of_batches = 0, all = 0;
  bool others_read = false;
  flight.of_batches = true;
  for (const Part& part : flight.parts) {
    Sequence& s = *part.sequence;
    const int64_t tokens = part.tokens + part.source, end = part.first + part.tokens;
    if (part.source > 0 && !std::exchange(s.origin->charged, true)) s.flow->served += part.source;
    s.flow->served += std::clamp<int64_t>(end - s.charged, 0, part.tokens);
    s.charged = std::max(s.charged, end);
    if (s.of_batch()) of_batches += tokens;
    else others_read = others_read || tokens > 1;
    all += tokens;
    flight.of_batches = flight.of_batches && s.request.background;
  }
  flight.tokens = all;
  const bool batches_wait = std::any_of(worker.running.begin(), worker.running.end(), [](const Sequence* s) {
    return s->of_batch() && s->reads_prompt();
  });
  worker.step_times.planned(flight.plan, all);
  if (flight.overtakes) return;  // batches have their turn meanwhile
  // A source that found no room waits for the decodes of others, too.
  worker.batch_turn.planned(batches_wait && (others_read || worker.source_left_out), step_tokens(worker), of_batches);
}

}  // namespace moestro::orchestrator
