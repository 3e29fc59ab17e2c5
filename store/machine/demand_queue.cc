#include "store/machine/demand_queue.h"

namespace moestro::store {

bool DemandQueue::want(uint32_t slot, uint32_t entry, Why why, bool queued) {
  const Place place{why.plan, why.moe_layer, arrivals_++, entry};
  if (!wants_[entry].emplace(slot, place).second) return false;
  if (queued) queues_[slot].insert(place);
  return true;
}

void DemandQueue::forget(uint32_t slot) {
  queues_[slot].clear();
  for (auto at = wants_.begin(); at != wants_.end();) {
    at->second.erase(slot);
    at = at->second.empty() ? wants_.erase(at) : std::next(at);
  }
  if (head_ && !wanted(*head_)) head_.reset();
}

std::optional<uint32_t> DemandQueue::next() const {
  if (head_) return head_;
  for (uint32_t i = 0; i < kWorkerSlotsMax; ++i) {
    const auto& queue = queues_[(turn_ + i) % kWorkerSlotsMax];
    if (!queue.empty()) return std::get<3>(*queue.begin());
  }
  return std::nullopt;
}

void DemandQueue::taken(uint32_t entry) {
  if (head_ == entry) head_.reset();
  const auto found = wants_.find(entry);
  if (found == wants_.end()) return;
  for (uint32_t i = 0; i < kWorkerSlotsMax; ++i) {  // whoever's turn brought it up has had it
    const uint32_t slot = (turn_ + i) % kWorkerSlotsMax;
    if (queues_[slot].empty()) continue;
    if (std::get<3>(*queues_[slot].begin()) == entry) turn_ = (slot + 1) % kWorkerSlotsMax;
    break;
  }
  for (const auto& [slot, place] : found->second) queues_[slot].erase(place);
}

std::vector<uint32_t> DemandQueue::ended(uint32_t entry) {
  taken(entry);
  std::vector<uint32_t> slots;
  if (const auto found = wants_.find(entry); found != wants_.end()) {
    for (const auto& [slot, place] : found->second) slots.push_back(slot);
    wants_.erase(found);
  }
  return slots;
}

size_t DemandQueue::queued() const {
  size_t count = 0;
  for (const auto& queue : queues_) count += queue.size();
  return count;
}

}  // namespace moestro::store
