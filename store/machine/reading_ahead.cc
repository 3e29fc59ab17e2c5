// Reads that nobody waits for yet: what workers think that they will need.

#include <utility>

#include "store/machine/store_machine.h"

namespace moestro::store {

Actions StoreMachine::prefetch(uint32_t slot, ReadQueue::Why why, const std::vector<uint32_t>& wanted) {
  Actions actions;
  for (const uint32_t asked : wanted) {
    share_unread(asked, actions);
    const uint32_t index = contents_.resolve(asked);
    const Residency state = entries_[index].state;
    if (state != Residency::kAbsent && state != Residency::kLoading) continue;  // there, or never to be had
    counters_.prefetches += queue_.want(slot, index, why, ReadClass::kPrefetch, state == Residency::kAbsent);
  }
  schedule(actions);
  return actions;
}

Actions StoreMachine::steer(uint32_t slot, uint64_t plan_max, std::span<const LayerRank> layers) {
  Actions actions;
  const std::vector<uint32_t> unwanted = queue_.steer(slot, plan_max, layers);
  counters_.prefetches_dropped += unwanted.size();
  give_up(unwanted, actions);
  schedule(actions);
  return actions;
}

/// A load that is demanded now counts, and is read, as one.
void StoreMachine::promote(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  if (entry.read_class == ReadClass::kDemand) return;
  counters_.prefetches_late += entry.read_class == ReadClass::kPrefetch;
  no_longer_ahead(index);
  no_longer_loading(entry);
  entry.read_class = ReadClass::kDemand;
  ++loading_[0], loading_bytes_[0] += entry.blob.length;
  actions.push_back({.kind = Action::Kind::kPromote, .entry = index, .load = entry.load});
}

/// What was to be read ahead is not begun, or ends at its next chunk. A demand that was begun is read to its end: it is
/// nearly there.
void StoreMachine::give_up(const std::vector<uint32_t>& unwanted, Actions& actions) {
  for (const uint32_t index : unwanted) {
    Entry& entry = entries_[index];
    const bool ends = entry.state == Residency::kLoading && entry.read_class != ReadClass::kDemand && !entry.ahead;
    if (ends && !std::exchange(entry.given_up, true))
      actions.push_back({.kind = Action::Kind::kCancel, .entry = index, .load = entry.load});
  }
}

/// The loader has left the load of `index` off: whoever wants it by now has it read again.
Actions StoreMachine::given_up(uint32_t index) {
  Actions actions;
  Entry& entry = entries_[index];
  no_longer_loading(entry);
  entry.tried.clear();
  leave_place(index, actions);
  set_state(index, Residency::kAbsent);
  queue_.queue_again(index);
  if (sweep_again_) sweep(actions);
  schedule(actions);
  return actions;
}

const PrefetchLedger::Counters& StoreMachine::prefetch_counters() {
  prefetched_.settle([this](uint32_t index) { return shared_.uses(index).sixteenths; });
  return prefetched_.counters();
}

}  // namespace moestro::store
