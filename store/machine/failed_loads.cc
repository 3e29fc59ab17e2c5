// What becomes of a blob whose bytes are wrong in memory, of one that cannot be read, and of their places.
//
// A blob that is found wrong, by a successor's check or by the scrubber, is leased to nobody from then on: its word
// says LOADING. It is read again at once, where it lies, while workers may have it pinned from before: they see wrong
// bytes become right ones, and nothing else moves. They are told by the entry's count of such finds, which grows before
// the read begins, and give up what they have computed with it (Lease::is_right). To wait for their unpinning would
// keep the blob from everybody for as long as one of them is stopped. If the read fails too, the blob is BAD, so that
// nobody begins to use it, but its place stays its own until nobody has it pinned: another blob's bytes in there would
// come under a lease.
//
// One look at each pin word is enough to see that the leases are gone. Whoever has one saw RESIDENT with its word set
// and has not cleared it since; the word of the table has not been RESIDENT since the reading began, so no lease is
// added. A pin that is only the wish to have the blob is waited for like the others: its worker clears it when it hears
// that the blob is bad.
//
// A drive that was away for a moment must not need an operator. So a BAD blob is read again when a worker needs it and
// some time has passed: 10 s, and twice as long after each further failure, up to 5 minutes. Between two tries it fails
// whoever needs it at once, for reads of a bad drive can take a minute each. If another pack turns out to have its
// bytes, it stands for those at once (sharing.cc).
//
// The place in the table is kNoPlace from the time that the range may be another blob's, so that a successor knows the
// one from the other.

#include <algorithm>
#include <utility>

#include "store/machine/store_machine.h"

namespace moestro::store {
namespace {

constexpr Nanos kFirstPause = std::chrono::seconds(10), kLongestPause = std::chrono::minutes(5);

}  // namespace

Actions StoreMachine::found_wrong(uint32_t index) {
  Actions actions;
  const Entry& entry = entries_[index];
  if (entry.state != Residency::kResident) return actions;
  ++counters_.scrub_mismatches;
  if (!entry.blob.dense) policy_->removed(index), count_waste(index), no_longer_ahead(index);
  read_where_it_lies(index, actions);
  return actions;
}

void StoreMachine::read_where_it_lies(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  set_state(index, Residency::kLoading);  // first: whoever still sees RESIDENT has a lease of before, and is told
  shared_.note_wrong(index);
  if (entry.held) std::erase(held_, index);
  entry.held = false, entry.failure = Status::ok();
  if (next_source(index)) return begin(index, ReadClass::kDemand, actions);
  failed(index, corrupt("its bytes have changed in memory, and its pack is not served any more"), actions);
  tell(index, entry.failure.code(), actions);
}

void StoreMachine::failed(uint32_t index, const Status& why, Actions& actions) {
  Entry& entry = entries_[index];
  entry.failure = why;
  if (!failed_before(index)) ++counters_.bad_blobs;
  entry.pause = failed_before(index) ? std::min(2 * entry.pause, kLongestPause) : kFirstPause;
  entry.again = pace_.now() + entry.pause;
  entry.held = under_leases(index);
  if (entry.held) held_.push_back(index);
  else leave_place(index, actions);
  set_state(index, Residency::kBad);
}

/// Of one that is BAD.
void StoreMachine::try_again(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  if (entry.held) return read_where_it_lies(index, actions);
  entry.failure = Status::ok();
  set_state(index, Residency::kAbsent);
}

/// Unlike the counter, it goes down again: when they are read, also from another pack, mended, or forgotten with their
/// own. One that is being read again counts until that is done: an alarm would come and go with each try.
size_t StoreMachine::unreadable() const {
  return static_cast<size_t>(std::ranges::count_if(entries_, [](const Entry& e) { return e.pause > Nanos(0); }));
}

/// Its bytes are there, or are another entry's from now on.
void StoreMachine::can_be_read(uint32_t index) {
  if (std::exchange(entries_[index].pause, Nanos(0)) > Nanos(0)) readable_again_.push_back(index);
}

/// Of a blob that is not RESIDENT.
bool StoreMachine::under_leases(uint32_t index) {
  Entry& entry = entries_[index];
  return entry.leased = entry.leased && shared_.pinned(index);
}

/// What is not there, and not looked at by anyone, has no place; but dense weights that have their own keep it.
void StoreMachine::leave_place(uint32_t index, Actions& actions) {
  if (entries_[index].blob.stays()) return discharge(index);
  shared_.set_place(index, kNoPlace, content_of(index));
  give_back(index, actions);
}

void StoreMachine::leave_held_places(Actions& actions) {
  std::erase_if(held_, [&](uint32_t index) {
    entries_[index].held = under_leases(index);
    if (!entries_[index].held) leave_place(index, actions);
    return !entries_[index].held;
  });
}

/// As far as it is known.
ContentHash StoreMachine::content_of(uint32_t index) const {
  const auto& key = contents_.key(index);
  return key ? key->hash : ContentHash{};
}

}  // namespace moestro::store
