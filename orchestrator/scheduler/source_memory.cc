// Encoder-decoder models: a source is encoded before its target begins, and what comes of it stays (decision 55).
//
// Each position of a source sees all others, so it goes into one plan as a whole. What comes of it, its memory, lies in
// KV blocks that are taken when the first sequence of the request is admitted to a worker, and given back when the last
// has left it. A sequence that is sent back lets go of it, and its source is encoded again where no other keeps it.
//
// A target begins once its memory is known to be written, not behind it in the plan under way: its source may fail.

#include <algorithm>

#include "common/check.h"
#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

/// The longest source that a worker takes.
int64_t Scheduler::source_max(const Worker& worker) const {
  return std::min<int64_t>(step_tokens_max(worker), worker.limits.context_max);
}

/// Whether a worker can hold the sequence, if it has nothing else.
bool Scheduler::holds(const Worker& worker, const Sequence& s) const {
  return room_of(worker).holds(s);
}

/// Blocks to take for its memory: none where another sequence of the request is.
int64_t Scheduler::memory_wanted(const Worker& worker, const Sequence& s) {
  return worker.memories.contains(s.request.source.get()) ? 0 : worker.kv.needed(s.source());
}

void Scheduler::hold_memory(Worker& worker, Sequence& s) {
  if (!s.request.source) return;
  const auto [at, is_new] = worker.memories.try_emplace(s.request.source.get());
  Memory& memory = at->second;
  for (uint32_t left = is_new ? worker.kv.needed(s.source()) : 0; left > 0; --left) {
    const auto block = worker.kv.take();
    MOESTRO_CHECK(block.has_value(), "room for its memory was just found");
    memory.blocks.push_back(*block);
  }
  ++memory.holders;
  s.memory = &memory;
}

void Scheduler::let_go_of_memory(Worker& worker, Sequence& s) {
  Memory* const memory = std::exchange(s.memory, nullptr);
  if (memory == nullptr || --memory->holders > 0) return;
  for (const uint32_t block : memory->blocks) worker.kv.give_back(block);
  worker.memories.erase(s.request.source.get());
}

/// If a source found no room in the plan before, puts the first of the order to the front. One of a batch leads beside
/// those that somebody reads only when it is the batches' turn.
void Scheduler::lead_with_source(Worker& worker, PlanningOrder& order) const {
  if (!std::exchange(worker.source_left_out, false)) return;
  const bool batches_may = worker.readers() == 0 || worker.batch_turn.due(step_tokens(worker));
  const auto at = std::ranges::find_if(order.sequences, [&](const Sequence* s) {
    return may_encode(worker, *s) && (batches_may || !s->of_batch());
  });
  if (at == order.sequences.end()) return;
  ++order.fixed;
  std::rotate(order.sequences.begin(), at, at + 1);
}

/// A long source may never fit beside those that decode. After a plan that had no room for it a source leads the next,
/// but no two plans one after the other are led so: those that decode are in every second one. The plans of suspects
/// between them do not count.
void Scheduler::note_source_left_out(Worker& worker, const Flight& flight) const {
  if (flight.parts.front().source > 0 || flight.alone) return;
  worker.source_left_out = std::ranges::any_of(
      worker.running, [&](const Sequence* s) { return !s->alone() && may_encode(worker, *s); });
}

void Scheduler::enter_origin(Sequence& s) {
  if (!s.request.source) return;
  s.origin = &origins_[s.request.source.get()];
  ++s.origin->sequences;
}

void Scheduler::leave_origin(const Sequence& s) {
  if (s.origin != nullptr && --s.origin->sequences == 0) origins_.erase(s.request.source.get());
}

/// Whether another worker has its source to encode; also if it is for a sequence that has left.
bool Scheduler::is_with_another(const Worker& worker, const Sequence& s) const {
  const auto encodes_it = [&](const Flight& flight) {
    return !flight.lost && std::ranges::find(flight.parts, s.request.source, &Part::encoded) != flight.parts.end();
  };
  return std::ranges::any_of(workers_, [&](const auto& entry) {
    return entry.second.get() != &worker && std::ranges::any_of(entry.second->flights, encodes_it);
  });
}

/// Whether its source may be encoded now: it is with one worker at a time, so that no two die of it at once, and who
/// shares a source that was in flight at a death is not in flight elsewhere.
bool Scheduler::may_encode(const Worker& worker, const Sequence& s) const {
  return s.encodes() && !s.memory->under_way && !is_with_another(worker, s);
}

const Scheduler::Sequence& Scheduler::first_that_waits(const Worker& worker, const Memory& memory) {
  const auto it = std::ranges::find(worker.running, &memory, &Sequence::memory);
  MOESTRO_CHECK(it != worker.running.end(), "a memory has holders");
  return **it;
}

/// Its source, unless it is being encoded for another sequence of the request, here or elsewhere, or finds no room in
/// the plan: it may take all of a step if it is the first.
std::optional<Scheduler::Part> Scheduler::plan_source(const Worker& worker, Sequence& s, int64_t& budget,
                                                      Plan& plan) const {
  if (!may_encode(worker, s)) return std::nullopt;
  const int64_t tokens = s.source();
  if (plan.sequences.empty()) budget = std::max(budget, tokens);
  if (tokens > budget) return std::nullopt;
  PlannedSequence p;
  p.id = s.request.id;
  p.source = true;
  p.tokens = *s.request.source;
  p.memory = s.memory->blocks;
  p.request_id = s.request.request_id;
  plan.sequences.push_back(std::move(p));
  budget -= tokens;
  s.memory->under_way = true;
  s.last_plan = plan.id;
  return Part{.id = s.request.id, .sequence = &s, .source = tokens, .encoded = s.request.source};
}

/// Whom a part concerns: its sequence; of a source all that hold its memory, as each would have it encoded again.
std::vector<Scheduler::Sequence*> Scheduler::those_of(const Part& part) {
  if (part.source == 0) return {part.sequence};
  std::vector<Sequence*> all;
  std::ranges::copy_if(part.sequence->worker->running, std::back_inserter(all),
                       [&](const Sequence* s) { return s->memory == part.sequence->memory; });
  return all;
}

/// The sequence of `part` leaves. If it encodes a source for others, too, one of those waits for it from now on.
bool Scheduler::hand_on_source(const Worker& worker, Part& part) {
  if (part.source == 0) return false;
  const auto other = std::ranges::find_if(worker.running, [&](const Sequence* s) {
    return s != part.sequence && s->memory == part.sequence->memory;
  });
  if (other == worker.running.end()) return false;
  part.sequence = *other;
  return true;
}

/// Its source has been encoded, or has failed.
void Scheduler::take_in_source(Part& part, const SequenceOutcome& outcome) {
  Sequence& s = *part.sequence;
  if (!outcome.error.is_ok()) return fail(part, outcome.error);
  if (!outcome.sampled.empty() || !outcome.scores.empty() || !outcome.state_sum.empty())
    return fail(part, internal_error("the worker's answer does not match what was asked of it"));
  land(part);
  s.memory->written = true;
  s.further_at = now_;
}

/// What a worker has encoded nobody is suspected of, also if the sequence has left for which it was done.
void Scheduler::clear_sources(const Flight& flight, const PlanOutcome& outcome) {
  for (const SequenceOutcome& one : outcome.sequences) {
    if (!one.error.is_ok()) continue;
    for (const Part& part : flight.parts) {
      const auto it = part.id == one.id && part.encoded ? origins_.find(part.encoded.get()) : origins_.end();
      if (it != origins_.end()) it->second.deaths = 0, it->second.alone = false;
    }
  }
}

/// Counts the blocks of memories into `holders`, and says what is wrong with them.
std::string Scheduler::memories_inconsistency(const Worker& worker, std::vector<uint32_t>& holders) {
  std::map<const Memory*, int64_t> users;
  for (const Sequence* s : worker.running) {
    if ((s->memory == nullptr) != (s->request.source == nullptr))
      return "a running sequence has no memory of its source";
    if (s->memory != nullptr) ++users[s->memory];
  }
  for (const auto& [source, memory] : worker.memories) {
    if (users[&memory] != memory.holders || memory.holders == 0)
      return "a memory has another number of holders than its count";
    if (std::ssize(memory.blocks) != worker.kv.needed(std::ssize(*source))) return "a memory has too few blocks";
    for (const uint32_t block : memory.blocks) ++holders[block];
  }
  return {};
}

}  // namespace moestro::orchestrator
