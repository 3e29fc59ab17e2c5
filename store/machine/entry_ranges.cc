// Entries come and go with their packs while the store serves.

#include <algorithm>

#include "common/check.h"
#include "store/machine/store_machine.h"

namespace moestro::store {

/// Their dense weights get room as experts do, by eviction, when they are first asked for; here only the sum is kept in
/// mind. Entries that could not be forgotten since remove_entries() go on as they are.
Status StoreMachine::add_entries(uint32_t first, const std::vector<MachineBlob>& blobs) {
  MOESTRO_CHECK(first + blobs.size() <= entries_.size(), "entries beyond the table");
  uint64_t dense = 0, largest = 0;
  std::vector<MachineBlob> more;
  for (uint32_t i = 0; i < blobs.size(); ++i) {
    MOESTRO_CHECK(!entries_[first + i].used || entries_[first + i].going, "entries given to two packs");
    if (!entries_[first + i].used) more.push_back(blobs[i]);
  }
  for (const MachineBlob& blob : more) {
    if (blob.stays()) dense += Placement::rounded(blob.length);
    else if (!blob.dense) largest = std::max(largest, Placement::rounded(blob.length));
  }
  for (const MachineBlob& blob : more)
    if (blob.streamed && blob.length > window_.shape().place_bytes)
      return exhausted("no room for it: dense weights of a layer have " + std::to_string(blob.length) +
                       " bytes, and where they take turns there are places of " +
                       std::to_string(window_.shape().place_bytes) + "; start the store with this model");
  const bool fits = dense + largest <= expert_bytes_ && split_pins(more).fits;
  if (!fits)
    return exhausted("no room for it: its dense weights need " + std::to_string(dense) +
                     " bytes and its largest expert " + std::to_string(largest) + ", the arena has " +
                     std::to_string(expert_bytes_) +
                     " for experts and what is guaranteed to others; raise --dram, or remove another model first");
  for (uint32_t i = 0; i < blobs.size(); ++i) {
    Entry& entry = entries_[first + i];
    if (entry.used) {
      entry.going = false;
      continue;
    }
    const uint64_t generation =
        entry.generation;  // grows for ever: who still has the word of an earlier blob in mind cannot take this for it
    entry = Entry{};
    entry.blob = kind_of(blobs[i]), entry.used = true, entry.generation = generation;
    shared_.set_length(first + i, entry.blob.length);
  }
  expert_bytes_ -= dense;
  set_waste_share();
  share_out();
  return Status::ok();
}

Actions StoreMachine::remove_entries(uint32_t first, uint32_t count) {
  Actions actions;
  for (uint32_t index = first; index < first + count; ++index) entries_[index].going = true, entries_[index].owners = 0;
  charge_anew();
  sweep(actions);
  schedule(actions);
  return actions;
}

bool StoreMachine::entries_free(uint32_t first, uint32_t count) const {
  const auto among = [=](uint32_t index) { return index >= first && index - first < count; };
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    if (among(index) && entry.used) return false;
    if (entry.state == Residency::kLoading && among(entry.source)) return false;
  }
  return true;
}

/// Forgets what can be forgotten of packs that are gone. Aliases first: a first entry stays for as long as it has any.
void StoreMachine::sweep(Actions& actions) {
  sweep_again_ = false;
  const uint64_t before = expert_bytes_;
  for (const bool aliases : {true, false})
    for (uint32_t index = 0; index < entries_.size(); ++index)
      if (entries_[index].used && entries_[index].going && contents_.is_alias(index) == aliases)
        try_forget(index, actions);
  set_waste_share();
  if (expert_bytes_ != before) share_out();
}

/// No worker of its pack is left, so nobody has a right to a pin; one that is set nevertheless is waited for, not
/// overridden. What the store itself wants to read of it, for a warm start, is not wanted any more.
void StoreMachine::try_forget(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  if (contents_.holders(index).size() > 1) return;  // others have their bytes here
  const bool there = entry.state == Residency::kResident || entry.state == Residency::kAdopted;
  const bool ready = there ? try_evict(index) : entry.state != Residency::kLoading && !entry.held;
  if (!ready) {
    sweep_again_ = true;
    return;
  }
  (void)queue_.ended(index);
  policy_->forget(index);
  remembered_.erase(index);
  count_waste(index);
  if (entry.placed) give_back(index, actions);
  if (entry.blob.stays() && !contents_.is_alias(index)) expert_bytes_ += Placement::rounded(entry.blob.length);
  forget_claim(index);
  contents_.forget(index);
  entry.used = entry.going = false;
  entry.pause = Nanos(0);
  stands_for_nothing(index);
  outlooks_.entries_changed();
}

/// In the table: a successor must not take what an earlier blob held for a later one's bytes.
void StoreMachine::stands_for_nothing(uint32_t index) {
  set_state(index, Residency::kAbsent);
  shared_.clear_alias(index);
  shared_.set_place(index, 0, {});
}

/// A pack is there again, as it was: what could not be read may be tried anew.
Actions StoreMachine::mend_entries(uint32_t first, uint32_t count) {
  Actions actions;
  for (uint32_t index = first; index < first + count; ++index) {
    const uint32_t kept = contents_.resolve(index);
    Entry& entry = entries_[kept];
    if (entry.state != Residency::kBad) continue;
    entry.pause = Nanos(0);
    try_again(kept, actions);
  }
  schedule(actions);
  return actions;
}

}  // namespace moestro::store
