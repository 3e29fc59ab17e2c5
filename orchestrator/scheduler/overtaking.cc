// Interactive sequences do not wait for the end of a long step of batches: they overtake it.
//
// Only a step in which nobody reads along is overtaken, if it is expected to last longer than `tpot_target`. It is then
// the only one under way. The worker runs the overtaking plan between two of its layers, and lets it go on by a layer
// or more before the next one: so it is at most as many plans later as the model has layers. When it is done, readers
// and lines share steps again, as the target leaves room.
//
// A plan that overtakes must not write to what the other one writes to. Blocks of sequences that have left are free at
// once, because later plans come later; but not for a plan that overtakes. Nor does it carry releases and copies, which
// are in the order of all other plans. Sequences with a source do not overtake: their memory would be one more thing
// that both write to.

#include <algorithm>

#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

bool Scheduler::may_be_overtaken(const Worker& worker, const Flight& flight) const {
  return options_.overtaking && options_.tpot_target > Nanos(0) && worker.limits.overtaking_tokens_max > 0 &&
         !worker.has_states() && worker.limits.kv_host_blocks == 0 && flight.of_batches && !flight.overtakes &&
         flight.tokens > worker.step_times.tokens_within(options_.tpot_target);
}

/// Whether a plan that overtakes may be sent now. Not beside a sequence that runs alone, also if it has left since: a
/// worker that dies dies of it.
bool Scheduler::is_overtaken(const Worker& worker) const {
  return worker.flights.size() == 1 && !worker.flights.front().lost && !worker.flights.front().alone &&
         may_be_overtaken(worker, worker.flights.front()) &&
         std::ranges::none_of(worker.running, [](const Sequence* s) { return s->alone(); });
}

void Scheduler::overtake(Worker& worker) {
  if (worker.readers() == 0) return;
  Flight flight;
  Plan plan = form_plan(worker, flight, /*overtakes=*/true);
  if (!plan.sequences.empty()) send_plan(worker, std::move(flight), std::move(plan));
}

/// Those that somebody reads: decodes before prompts, and of the prompts those of the flow that was served least first.
Scheduler::PlanningOrder Scheduler::overtaking_order(const Worker& worker) const {
  PlanningOrder order;
  std::ranges::copy_if(worker.running, std::back_inserter(order.sequences), [&](const Sequence* s) {
    // What the worker is still to forget it forgets with a later plan.
    const bool to_be_released =
        std::ranges::find(worker.released, s->request.id, &ReleasedSequence::id) != worker.released.end();
    return !s->request.background && s->in_flight == 0 && !to_be_released && s->request.source == nullptr;
  });
  const auto prompts = std::stable_partition(order.sequences.begin(), order.sequences.end(),
                                             [](const Sequence* s) { return s->expected() - s->planned() == 1; });
  std::stable_sort(prompts, order.sequences.end(),
                   [](const Sequence* a, const Sequence* b) { return a->flow->served < b->flow->served; });
  order.fixed = static_cast<size_t>(prompts - order.sequences.begin());
  return order;
}

/// Whether the plan at hand writes to a block of `s`, for a sequence that has left.
bool Scheduler::others_write(const Worker& worker, const Sequence& s) {
  return std::ranges::any_of(s.blocks, [&](uint32_t b) { return b != kNoBlock && worker.kv.is_still_written(b); });
}

/// The sequence of `part` leaves, and `flight` computes it nevertheless.
void Scheduler::leave_written(Worker& worker, Flight& flight, const Part& part) {
  if (worker.limits.overtaking_tokens_max == 0) return;
  const int64_t block = worker.kv.block_tokens();
  for (int64_t k = part.first / block; k * block < part.first + part.tokens; ++k) {
    const uint32_t written = part.sequence->blocks[static_cast<size_t>(k)];
    if (written == kNoBlock) continue;
    worker.kv.leave_written(written);
    flight.left_written.push_back(written);
  }
}

/// The plan is over, and writes no more.
void Scheduler::settle(Worker& worker, const Flight& flight) {
  for (const uint32_t block : flight.left_written) worker.kv.written(block);
}

}  // namespace moestro::orchestrator
