// Content that several entries hold: one copy in the arena, read from whichever pack has it.

#include "store/machine/store_machine.h"

namespace moestro::store {

/// The entries whose packs are served and have its bytes.
std::vector<uint32_t> StoreMachine::sources(uint32_t index) const {
  std::vector<uint32_t> holders = contents_.holders(index);
  std::erase_if(holders, [this](uint32_t holder) { return entries_[holder].going; });
  return holders;
}

/// Which entry's slices the next read of `index` takes; none if all have failed since it was last read whole. Starts with the one
/// that served last, so that a drive that has gone bad is not asked again and again.
std::optional<uint32_t> StoreMachine::next_source(uint32_t index) const {
  const Entry& entry = entries_[index];
  const std::vector<uint32_t> holders = sources(index);
  if (entry.sources_failed >= holders.size()) return std::nullopt;
  return holders[(entry.source + entry.sources_failed) % holders.size()];
}

/// The read failed: tries the next pack that holds the same bytes. False if there is none.
bool StoreMachine::read_elsewhere(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  ++entry.sources_failed;
  const auto source = next_source(index);
  if (!source) return false;
  ++counters_.reads_elsewhere;
  entry.load = ++loads_begun_;
  actions.push_back({.kind = Action::Kind::kRead, .entry = index, .source = *source, .read_class = entry.read_class, .offset = entry.offset, .length = entry.blob.length,
                     .load = entry.load});
  return true;
}

void StoreMachine::source_was_good(uint32_t index) {
  Entry& entry = entries_[index];
  const auto count = static_cast<uint32_t>(sources(index).size());
  entry.source = count > 0 ? (entry.source + entry.sources_failed) % count : 0;
  entry.sources_failed = 0;
}

/// `index`, just read, holds what `first` holds: it gives up its copy, or, where `first` has none now, hands it over. Whoever waits for
/// it is told, finds the alias and goes on with `first`. Nobody can have `index` in use: it was never resident.
void StoreMachine::become_alias(uint32_t index, uint32_t first, const ContentHash& content, Actions& actions) {
  Entry& entry = entries_[index];
  Entry& kept = entries_[first];
  if (kept.state == Residency::kAbsent || kept.state == Residency::kBad) {
    if (kept.placed) ranges_.free(kept.offset, kept.blob.length);  // that of dense weights, never filled
    kept.offset = entry.offset, kept.placed = kept.blob.dense, kept.read_class = entry.read_class;
    discharge(index), charge(first);
    landed(first, content);
    tell(first, Code::kOk, actions);
  } else {
    give_back(index, actions);
    if (kept.charged != 0) charge(first);  // it is the other model's too, from now on
  }
  entry.offset = 0, entry.placed = false;
  if (entry.blob.dense) expert_bytes_ += ranges_.rounded(entry.blob.length), share_out();
  shared_.set_alias(index, first);
  set_state(index, Residency::kAlias);
  tell(index, Code::kOk, actions);
}

uint64_t StoreMachine::resident_bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.state == Residency::kResident ? entry.blob.length : 0;
  return bytes;
}

}  // namespace moestro::store
