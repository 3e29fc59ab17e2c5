// What becomes of a blob that cannot be read, and of its place.
//
// A blob that was adopted and found damaged is read again where it lies while workers may have it pinned from before: they see wrong bytes
// become right ones, and nothing else moves. If that fails too, the blob is BAD, so that nobody begins to use it, but its place stays its own
// until nobody has it pinned: another blob's bytes in there would come under a lease.
//
// One look at each pin word is enough to see that the leases are gone. Whoever has one saw RESIDENT with its word set and has not cleared it
// since; the word of the table has not been RESIDENT since the reading began, so no lease is added. A pin that is only the wish to have the
// blob is waited for like the others: its worker clears it when it hears that the blob is bad.
//
// The place in the table is kNoPlace from the time that the range may be another blob's, so that a successor knows the one from the other.

#include "store/machine/store_machine.h"

namespace moestro::store {

void StoreMachine::read_where_it_lies(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  if (entry.held) std::erase(held_, index);
  entry.held = false, entry.failure = Status::ok();
  entry.sources_failed = 0;
  if (!next_source(index)) {  // its pack has been removed
    entry.leased = true;
    failed(index, corrupt("its bytes have changed in memory, and its pack is not served any more"));
    tell(index, entry.failure.code(), actions);
    return;
  }
  begin(index, ReadClass::kDemand, actions);
  entry.leased = true;
}

void StoreMachine::failed(uint32_t index, const Status& why) {
  Entry& entry = entries_[index];
  entry.failure = why;
  ++counters_.bad_blobs;
  entry.held = entry.leased && !entry.blob.dense && shared_.pinned(index);
  if (entry.held) {
    held_.push_back(index);
  } else {
    discharge(index);
    if (!entry.blob.dense) {
      shared_.set_place(index, kNoPlace, content_of(index));
      placement_.give_back(false, entry.offset, entry.blob.length);
    }
  }
  set_state(index, Residency::kBad);
}

void StoreMachine::leave_held_places(Actions& actions) {
  std::erase_if(held_, [&](uint32_t index) {
    if (shared_.pinned(index)) return false;
    entries_[index].held = false;
    shared_.set_place(index, kNoPlace, content_of(index));
    give_back(index, actions);
    return true;
  });
}

/// As far as it is known.
ContentHash StoreMachine::content_of(uint32_t index) const {
  const auto& key = contents_.key(index);
  return key ? key->hash : ContentHash{};
}

}  // namespace moestro::store
