// What must hold between the calls of a tier.

#include <set>

#include "common/tier/tier_impl.h"

namespace moestro::tier {

std::string DeviceTier::Impl::check() const {
  const auto wrong = [](const char* what, size_t number) { return std::string(what) + " " + std::to_string(number); };
  size_t held = 0, copying = 0, wholes = 0;
  std::vector<uint64_t> waiting(by_layer.size());
  for (Slot slot = 0; slot < slots.size(); ++slot) {
    if (!slots[slot]) continue;
    ++held;
    const Entry& entry = entries[*slots[slot]];
    if (entry.state == State::kAbsent || entry.slot != slot) return wrong("a slot of a key that is not in it:", slot);
  }
  std::set<Slot> free_ones;
  for (const Pool& pool : pools)
    for (const Slot slot : pool.free) {
      if (!free_ones.insert(slot).second) return "a slot is free twice";
      if (slot < pool.first || slot >= pool.end) return "a slot is free for copies of the other kind";
    }
  if (held + free_ones.size() != slots.size())
    return wrong("slots that are neither free nor held:", slots.size() - held - free_ones.size());
  for (Key key = 0; key < entries.size(); ++key) {
    const Entry& entry = entries[key];
    copying += entry.state == State::kCopying, wholes += entry.state == State::kWhole;
    waiting[static_cast<size_t>(layer_of(key))] += entry.state == State::kWhole && entry.ahead;
    if (entry.state != State::kAbsent && slots[entry.slot] != key) return wrong("a key whose slot is another's:", key);
    const Pool& pool = pool_of(options.copy_of(key));
    if (entry.state != State::kAbsent && (entry.slot < pool.first || entry.slot >= pool.end))
      return wrong("a key in a slot for copies of the other kind:", key);
    if (entry.state == State::kAbsent &&
        (entry.sent != 0 || entry.given != 0 || entry.ahead || entry.standing || entry.doomed))
      return wrong("an absent key with a past:", key);
    if (entry.state == State::kWhole && entry.sent != options.bytes_of(key))
      return wrong("a whole key that lacks something:", key);
    if (entry.standing && !entry.ahead) return wrong("a prediction that stands for no prefetch:", key);
    const bool is_followed = options.copy_of(key) == Copy::kFull && followed[key] != 0;
    if ((entry.standing || entry.foreseen_at != kNever) && !is_followed)
      return wrong("a forecast for a key that is not followed:", key);
    if (entry.doomed && !is_on_link(key)) return wrong("a doomed copy that is not on the link:", key);
    if (entry.leased && (entry.needed == 0 || entry.state != State::kWhole))
      return wrong("a leased key that is not there, or not needed:", key);
    if (entry.ahead && entry.needed > 0) return wrong("a prefetch that somebody waits for:", key);
  }
  if (held != copying + wholes) return "a slot is held by a key without a copy";
  if (copies.size() != copying) return "copies are not listed";
  if (pools[0].whole + pools[1].whole != static_cast<int32_t>(wholes)) return "whole keys are not counted";
  for (size_t layer = 0; layer < by_layer.size(); ++layer) {
    const LayerCounters& c = by_layer[layer];
    if (c.prefetched != c.prefetched_used + c.prefetched_wasted + waiting[layer])
      return wrong("prefetches that came to nothing that is counted, of layer", layer);
  }
  for (const Key key : demands)
    if (entries[key].needed == 0 || entries[key].state == State::kWhole)
      return wrong("a demand that nobody waits for:", key);
  if (std::set<Key>(demands.begin(), demands.end()).size() != demands.size()) return "a demand is queued twice";
  std::vector<uint64_t> on_the_way(entries.size());
  for (const Chunk& chunk : on_link) {
    const Entry& entry = entries[chunk.key];
    if (entry.state != State::kCopying || entry.slot != chunk.slot) return "the link writes to a slot of another key";
    if (chunk.offset != entry.sent + on_the_way[chunk.key])
      return wrong("a chunk that is not the next one of its key:", chunk.key);
    on_the_way[chunk.key] += chunk.bytes;
  }
  if (std::ssize(on_link) > options.chunks_given) return "the link has more than it may be given";
  for (Key key = 0; key < entries.size(); ++key)
    if (entries[key].given != entries[key].sent + on_the_way[key])
      return wrong("a key of which more was given than is on its way:", key);
  return {};
}

}  // namespace moestro::tier
