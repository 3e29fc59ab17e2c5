// Content that several entries hold: one copy in the arena, read from whichever pack has it.

#include <algorithm>
#include <utility>

#include "store/machine/store_machine.h"

namespace moestro::store {

/// The entries whose packs are served and have its bytes.
std::vector<uint32_t> StoreMachine::sources(uint32_t index) const {
  std::vector<uint32_t> holders = contents_.holders(index);
  std::erase_if(holders, [this](uint32_t holder) { return entries_[holder].going; });
  return holders;
}

/// Which entry's slices the next read of `index` takes; none if all have been tried. Starts with the one that served
/// last, so that a drive that has gone bad is not asked again and again.
std::optional<uint32_t> StoreMachine::next_source(uint32_t index) const {
  const Entry& entry = entries_[index];
  std::vector<uint32_t> left = sources(index);
  std::erase_if(left, [&](uint32_t source) { return std::ranges::find(entry.tried, source) != entry.tried.end(); });
  if (left.empty()) return std::nullopt;
  return std::ranges::find(left, entry.source) != left.end() ? entry.source : left.front();
}

void StoreMachine::read_from(uint32_t source, uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  entry.load = ++loads_begun_, entry.source = source;
  actions.push_back({.kind = Action::Kind::kRead,
                     .entry = index,
                     .source = source,
                     .read_class = entry.read_class,
                     .offset = entry.offset,
                     .length = entry.blob.length,
                     .load = entry.load});
}

/// The read failed: tries the next pack that holds the same bytes. False if there is none.
bool StoreMachine::read_elsewhere(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  entry.tried.push_back(entry.source);
  const auto source = next_source(index);
  if (!source) return false;
  ++counters_.reads_elsewhere;
  read_from(*source, index, actions);
  return true;
}

/// The bytes of `index` were found to be those that the checksums in the manifest of `source` are of.
void StoreMachine::note_claim(uint32_t index, uint32_t source) {
  const MachineBlob& blob = entries_[source].blob;
  const uint32_t first = contents_.resolve(index);
  if (blob.claim.known() && contents_.key(first)) claims_[{blob.claim, blob.length, blob.format}] = first;
}

void StoreMachine::forget_claim(uint32_t index) {
  const MachineBlob& blob = entries_[index].blob;
  const auto known = claims_.find({blob.claim, blob.length, blob.format});
  if (known != claims_.end() && known->second == index) claims_.erase(known);
}

/// Another entry's bytes were compared with the very checksums that the manifest gives for `index`, which nobody has
/// read. Whether the file says the same does not matter: other bytes would be refused as damaged, so these are the only
/// ones it can stand for. Its manifest is believed about itself alone. The content hash is still that of bytes, those
/// of the other one.
std::optional<uint32_t> StoreMachine::known_equal(uint32_t index) const {
  const Entry& entry = entries_[index];
  const MachineBlob& blob = entry.blob;
  // One that could not be read needs no other try, and so no pause.
  const bool waits = entry.state == Residency::kAbsent || (entry.state == Residency::kBad && !entry.held);
  if (!entry.used || !waits || !blob.claim.known() || contents_.is_alias(index) || contents_.key(index))
    return std::nullopt;
  const auto known = claims_.find({blob.claim, blob.length, blob.format});
  if (known == claims_.end()) return std::nullopt;
  const uint32_t first = known->second;
  return entries_[first].state == Residency::kBad ? std::nullopt : std::optional(first);
}

/// True: `index`, never read, is an alias from now on.
bool StoreMachine::share_unread(uint32_t index, Actions& actions) {
  const auto first = known_equal(index);
  if (!first || contents_.learn(index, *contents_.key(*first)) != first) return false;
  if (entries_[index].placed) give_back(index, actions);  // that of dense weights, never filled
  needs_no_place(index);
  if (entries_[*first].charged != 0) charge(*first);
  can_be_read(index);
  shared_.set_alias(index, *first);
  set_state(index, Residency::kAlias);
  outlooks_.entries_changed();
  tell(index, Code::kOk, actions);
  return true;
}

Actions StoreMachine::share_known(uint32_t first, uint32_t count) {
  Actions actions;
  for (uint32_t index = first; index < first + count; ++index) share_unread(index, actions);
  return actions;
}

/// It is an alias: the room that dense weights have for good is there for experts.
void StoreMachine::needs_no_place(uint32_t index) {
  Entry& entry = entries_[index];
  entry.offset = 0;
  if (entry.blob.stays()) expert_bytes_ += Placement::rounded(entry.blob.length), share_out();
}

/// `index`, just read, holds what `first` holds: it gives up its copy, or, where `first` has none now, hands it over.
/// Whoever waits for it is told, finds the alias and goes on with `first`. Nobody can have `index` in use: it was never
/// resident. A `first` that could not be read and is still under leases stays where it lies, and there is a new pack
/// now to read it from. `index` is an alias, which has no place, before its place is that of `first`: a successor never
/// finds both there.
void StoreMachine::become_alias(uint32_t index, uint32_t first, const ContentHash& content, Actions& actions) {
  Entry& entry = entries_[index];
  Entry& kept = entries_[first];
  const bool held = kept.held;
  no_longer_ahead(index), outlooks_.entries_changed();
  shared_.set_alias(index, first);
  set_state(index, Residency::kAlias);
  if (!held && (kept.state == Residency::kAbsent || kept.state == Residency::kBad)) {
    if (kept.placed) give_back(first, actions);  // that of dense weights, which nobody looks at
    placement_.hand_over(entry.blob.dense, entry.offset, first);
    kept.offset = entry.offset, kept.placed = std::exchange(entry.placed, false), kept.read_class = entry.read_class;
    discharge(index), charge(first);
    can_be_read(first);
    landed(first, content);
    tell(first, Code::kOk, actions);
  } else {
    give_back(index, actions);
    if (kept.charged != 0) charge(first);  // it is the other model's too, from now on
  }
  needs_no_place(index);
  tell(index, Code::kOk, actions);
  if (held) read_where_it_lies(first, actions);
}

uint64_t StoreMachine::resident_bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.state == Residency::kResident ? entry.blob.length : 0;
  return bytes;
}

}  // namespace moestro::store
