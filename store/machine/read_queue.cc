#include "store/machine/read_queue.h"

#include <algorithm>

namespace moestro::store {

bool ReadQueue::want(uint32_t slot, uint32_t entry, Why why, ReadClass read_class, bool queued) {
  Item& item = items_[entry];
  size_t before = 0;
  for (const Want& want : item.wants) {
    if (want.slot != slot || want.read_class != read_class) continue;
    ++before;
    if (want.plan == why.plan && want.moe_layer == why.moe_layer) return false;
  }
  if (before >= kWantsMax) return false;
  leave(entry, item);
  item.wants.push_back({slot, read_class, why.plan, why.moe_layer, why.moe_layer, arrivals_++});
  item.queued = queued;
  enter(entry, item);
  return before == 0;
}

/// Each want has a place of its own in the queue of its slot and class: the first of them is where the blob comes up.
void ReadQueue::enter(uint32_t entry, const Item& item) {
  if (!item.queued) return;
  for (const Want& w : item.wants)
    queues_[static_cast<size_t>(w.read_class)][w.slot].emplace(w.plan, w.rank, w.arrival, entry);
}

void ReadQueue::leave(uint32_t entry, const Item& item) {
  if (!item.queued) return;
  for (const Want& w : item.wants)
    queues_[static_cast<size_t>(w.read_class)][w.slot].erase({w.plan, w.rank, w.arrival, entry});
}

template <typename Change>
std::vector<uint32_t> ReadQueue::revise(Change change) {
  std::vector<uint32_t> unwanted;
  for (auto at = items_.begin(); at != items_.end();) {
    Item& item = at->second;
    leave(at->first, item);
    size_t kept = 0;
    for (Want& want : item.wants)
      if (!change(want)) item.wants[kept++] = want;
    item.wants.resize(kept, Want{});
    if (!item.wants.empty()) {
      enter(at->first, item);
      ++at;
      continue;
    }
    unwanted.push_back(at->first);
    at = items_.erase(at);
  }
  if (head_ && !demanded(*head_)) head_.reset();
  return unwanted;
}

std::vector<uint32_t> ReadQueue::forget(uint32_t slot) {
  return revise([slot](const Want& want) { return want.slot == slot; });
}

std::vector<uint32_t> ReadQueue::withdraw_demands(uint32_t slot) {
  return revise([slot](const Want& want) { return want.slot == slot && want.read_class == ReadClass::kDemand; });
}

std::vector<uint32_t> ReadQueue::steer(uint32_t slot, uint64_t plan_max, std::span<const LayerRank> layers) {
  std::unordered_map<uint32_t, uint32_t> ranks;
  for (const LayerRank& layer : layers) ranks[layer.moe_layer] = layer.rank;
  return revise([&](Want& want) {
    if (want.slot != slot || want.read_class != ReadClass::kPrefetch || want.plan > plan_max) return false;
    const auto found = ranks.find(want.moe_layer);
    if (found == ranks.end()) return false;
    want.rank = found->second;
    return want.rank == LayerRank::kDrop;
  });
}

std::optional<ReadQueue::Next> ReadQueue::next() const {
  if (head_) return Next{*head_, ReadClass::kDemand};
  for (size_t c = 0; c < kReadClasses; ++c)
    for (uint32_t i = 0; i < kSlots; ++i) {
      const auto& queue = queues_[c][(turn_[c] + i) % kSlots];
      if (!queue.empty()) return Next{std::get<3>(*queue.begin()), static_cast<ReadClass>(c)};
    }
  return std::nullopt;
}

void ReadQueue::taken(uint32_t entry) {
  if (head_ == entry) head_.reset();
  const auto found = items_.find(entry);
  if (found == items_.end()) return;
  for (size_t c = 0; c < kReadClasses; ++c)
    for (uint32_t i = 0; i < kSlots; ++i) {  // whoever's turn brought it up has had it
      const uint32_t slot = (turn_[c] + i) % kSlots;
      if (queues_[c][slot].empty()) continue;
      if (std::get<3>(*queues_[c][slot].begin()) == entry) turn_[c] = (slot + 1) % kSlots;
      break;
    }
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
      if (want.read_class == ReadClass::kDemand && std::ranges::find(slots, want.slot) == slots.end())
        slots.push_back(want.slot);
    items_.erase(found);
  }
  std::ranges::sort(slots);
  return slots;
}

bool ReadQueue::demanded(uint32_t entry) const {
  const auto found = items_.find(entry);
  return found != items_.end() && std::ranges::any_of(found->second.wants, [](const Want& want) {
           return want.read_class == ReadClass::kDemand;
         });
}

size_t ReadQueue::queued(ReadClass read_class) const {
  return static_cast<size_t>(std::ranges::count_if(items_, [&](const auto& item) {
    if (!item.second.queued) return false;
    const auto most_urgent = std::ranges::min_element(item.second.wants, {}, &Want::read_class);
    return most_urgent->read_class == read_class;
  }));
}

size_t ReadQueue::queued() const {
  return static_cast<size_t>(std::ranges::count_if(items_, [](const auto& item) { return item.second.queued; }));
}

}  // namespace moestro::store
