// Dense weights that take turns (layer_window.h; common/tier/dense_window.h chooses which).
//
// A worker pins the layer that it computes with, and has asked for those after it: at most its share of the places
// (set_window_share). The shares fit into the window together, so whoever waits for a place gets one: some place has
// nothing pinned in it, or is being read for nobody any more. While shares shrink, because a worker has attached,
// others may still hold more. Then a demand waits outside of the queue: experts that those others wait for must go past
// it, or they would never let go.

#include <algorithm>
#include <utility>

#include "store/machine/store_machine.h"

namespace moestro::store {
namespace {
/// A lease for the life of a worker may be on any blob that stays. So no such blob may be an alias of a streamed one.
constexpr uint32_t kStreamedFormat = 1U << 31;
}  // namespace

MachineBlob StoreMachine::kind_of(const MachineBlob& blob) {
  MachineBlob kind = blob;
  if (blob.streamed) kind.format |= kStreamedFormat;
  return kind;
}

/// A place that is free, or for a demand also that of another layer.
std::optional<uint64_t> StoreMachine::room_in_window(ReadClass read_class, Actions& actions) {
  if (const auto free = window_.take()) return free;
  if (read_class != ReadClass::kDemand || !evict_from_window(actions)) return std::nullopt;
  return window_.take();
}

/// One worker passes the layers in a cycle: what it used last, it needs again last. Several follow each other: what one
/// has used last, another needs soon.
bool StoreMachine::evict_from_window(Actions& actions) {
  std::vector<std::pair<uint64_t, uint32_t>> by_use;
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    const bool there = entry.state == Residency::kResident || entry.state == Residency::kAdopted;
    if (entry.blob.streamed && entry.used && there) by_use.emplace_back(shared_.uses(index).stamp, index);
  }
  std::ranges::sort(by_use);
  if (attached_workers() <= 1) std::ranges::reverse(by_use);
  for (const auto& [stamp, index] : by_use) {
    if (!try_evict(index)) continue;
    give_back(index, actions);
    set_state(index, Residency::kAbsent);
    queue_.queue_again(index);  // as evicted() does, for who asked while it was ADOPTED
    ++counters_.evictions;
    return true;
  }
  return false;
}

void StoreMachine::wait_for_window(uint32_t index) {
  queue_.taken(index);
  window_waits_.push_back(index);
  blocked_ = true;
}

void StoreMachine::queue_for_window() {
  for (const uint32_t index : std::exchange(window_waits_, {}))
    if (entries_[index].state == Residency::kAbsent) queue_.queue_again(index);
}

uint32_t StoreMachine::attached_workers() const {
  return static_cast<uint32_t>(std::ranges::count_if(workers_, [](const auto& worker) { return worker.has_value(); }));
}

void StoreMachine::share_window() {
  const uint32_t workers = std::max<uint32_t>(attached_workers(), 1), places = window_.shape().places;
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
    shared_.set_window_share(slot, workers_[slot] ? places / workers : 0);
}

}  // namespace moestro::store
