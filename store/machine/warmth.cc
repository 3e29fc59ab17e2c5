// What is hot, by the policy's measure: noted when a store shuts down, remembered and read again by the next one.

#include <algorithm>
#include <set>

#include "store/machine/store_machine.h"

namespace moestro::store {
namespace {
constexpr double kInstant = 1e-6;  ///< of the policies' clock, which counts uses: keeps an order, and is no time at all
}

void StoreMachine::look_at_all() {
  watch_.tick();
  for (uint32_t index = 0; index < entries_.size(); ++index) look_at(index);
}

/// The place of bytes whose first pack is going is told of as the first of the others that have them.
std::vector<Warmth> StoreMachine::by_heat() {
  look_at_all();
  std::vector<Warmth> dense, experts, aliases;
  std::set<uint32_t> stood_for;
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    const uint32_t first = contents_.resolve(index);
    const Residency state = entries_[first].state;
    if (!entry.used || entry.going || entry.blob.streamed) continue;
    if (state != Residency::kResident && state != Residency::kAdopted) continue;
    const bool stands_for_it = first == index || (entries_[first].going && stood_for.insert(first).second);
    if (!stands_for_it) aliases.push_back({index, 0});
    else if (entry.blob.dense) dense.push_back({index, 0});
    else experts.push_back({index, policy_->heat(first, watch_.now())});
  }
  std::ranges::stable_sort(experts, std::greater{}, &Warmth::heat);
  dense.insert(dense.end(), experts.begin(), experts.end());
  dense.insert(dense.end(), aliases.begin(), aliases.end());
  return dense;
}

/// Policies by recency go by the order, those by frequency by the heat: a key that was in the cache and has left it is
/// one that they know.
void StoreMachine::remember(std::span<const Warmth> hottest_first) {
  watch_.tick();
  double time = watch_.now() + kInstant * static_cast<double>(hottest_first.size());
  for (const Warmth& known : hottest_first) {
    time -= kInstant;
    const Entry& entry = entries_[known.entry];
    if (!entry.used || entry.blob.dense || entry.state != Residency::kAbsent) continue;
    policy_->inserted(known.entry, group_of(entry.blob.length), {time, known.heat});
    policy_->removed(known.entry);
    remembered_[known.entry] = time;
  }
}

Actions StoreMachine::warm(const std::vector<uint32_t>& wanted) {
  Actions actions;
  for (const uint32_t asked : wanted) {
    const uint32_t index = contents_.resolve(asked);
    if (entries_[index].used && !entries_[index].going && !entries_[index].blob.streamed &&
        entries_[index].state == Residency::kAbsent)
      queue_.want(kStoreSlot, index, {}, true);
  }
  schedule(actions);
  return actions;
}

}  // namespace moestro::store
