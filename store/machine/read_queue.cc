#include "store/machine/read_queue.h"

#include <algorithm>

namespace moestro::store {
namespace {
template <typename Item>
bool is_demanded(const Item& item) {
  return std::ranges::any_of(item.wants, [](const auto& want) { return want.slot != kStoreSlot; });
}
}  // namespace

bool ReadQueue::want(uint32_t slot, uint32_t entry, Why why, bool queued) {
  Item& item = items_[entry];
  if (std::ranges::find(item.wants, slot, &Want::slot) != item.wants.end()) return false;
  leave(entry, item);
  item.wants.push_back({slot, why, arrivals_++});
  item.queued = queued;
  enter(entry, item);
  return true;
}

ReadQueue::Place ReadQueue::place_of(uint32_t entry, const Want& want) {
  return {want.why.plan, want.why.moe_layer, want.arrival, entry};
}

/// Each want has a place of its own in the queue of its slot: the first of them is where the blob comes up.
void ReadQueue::enter(uint32_t entry, const Item& item) {
  if (!item.queued) return;
  for (const Want& want : item.wants) queues_[want.slot].insert(place_of(entry, want));
}

void ReadQueue::leave(uint32_t entry, const Item& item) {
  if (!item.queued) return;
  for (const Want& want : item.wants) queues_[want.slot].erase(place_of(entry, want));
}

void ReadQueue::forget(uint32_t slot) {
  queues_[slot].clear();
  for (auto& [entry, item] : items_) std::erase_if(item.wants, [slot](const Want& want) { return want.slot == slot; });
  std::erase_if(items_, [](const auto& item) { return item.second.wants.empty(); });
  if (head_ && !demanded(*head_)) head_.reset();
}

std::optional<uint32_t> ReadQueue::slot_in_turn() const {
  for (uint32_t i = 0; i < kWorkerSlotsMax; ++i)
    if (const uint32_t slot = (turn_ + i) % kWorkerSlotsMax; !queues_[slot].empty()) return slot;
  return queues_[kStoreSlot].empty() ? std::nullopt : std::optional(kStoreSlot);
}

std::optional<ReadQueue::Next> ReadQueue::next() const {
  if (head_) return Next{*head_, ReadClass::kDemand};
  const auto slot = slot_in_turn();
  if (!slot) return std::nullopt;
  return Next{std::get<3>(*queues_[*slot].begin()), *slot == kStoreSlot ? ReadClass::kScrub : ReadClass::kDemand};
}

void ReadQueue::taken(uint32_t entry) {
  if (head_ == entry) head_.reset();
  const auto found = items_.find(entry);
  if (found == items_.end()) return;
  const auto slot = slot_in_turn();  // if its turn has brought this one up, it has had it
  if (slot && *slot != kStoreSlot && std::get<3>(*queues_[*slot].begin()) == entry)
    turn_ = (*slot + 1) % kWorkerSlotsMax;
  leave(entry, found->second);
  found->second.queued = false;
}

void ReadQueue::queue_again(uint32_t entry) {
  const auto found = items_.find(entry);
  if (found == items_.end() || found->second.queued) return;
  found->second.queued = true;
  enter(entry, found->second);
}

std::vector<uint32_t> ReadQueue::ended(uint32_t entry) {
  taken(entry);
  std::vector<uint32_t> slots;
  if (const auto found = items_.find(entry); found != items_.end()) {
    for (const Want& want : found->second.wants)
      if (want.slot != kStoreSlot) slots.push_back(want.slot);
    items_.erase(found);
  }
  std::ranges::sort(slots);
  return slots;
}

bool ReadQueue::demanded(uint32_t entry) const {
  const auto found = items_.find(entry);
  return found != items_.end() && is_demanded(found->second);
}

size_t ReadQueue::queued() const {
  return static_cast<size_t>(std::ranges::count_if(items_, [](const auto& item) { return item.second.queued; }));
}

size_t ReadQueue::queued_demands() const {
  return static_cast<size_t>(std::ranges::count_if(
      items_, [](const auto& item) { return item.second.queued && is_demanded(item.second); }));
}

}  // namespace moestro::store
