// Who goes, so that something else can come (placement.h says where things lie).
//
// A blob that finds no free place takes that of the coldest one of its own length, or of everything in a segment of
// another length: whichever is worth less, a byte. Only a demand changes what a segment is for; a read ahead takes what
// is free, or what victims.cc lets it have. When nothing of its own length can go, a demand takes whatever segment can
// be emptied.

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/fault_point.h"
#include "store/machine/store_machine.h"

namespace moestro::store {
namespace {
using Kind = policy::Verdict::Kind;
/// Emptying a segment loses what lies in it at once, and brings room that is used bit by bit.
constexpr double kWorthwhile = 0.9;
/// All segments are looked at only once in so many evictions, in proportion to the entries that lie in them.
constexpr uint32_t kEvictionsBetweenLooks = 16, kEntriesPerEviction = 16;
constexpr double kAnyHeat = std::numeric_limits<double>::infinity();
}  // namespace

uint32_t StoreMachine::group_of(uint64_t length) {
  const auto [at, fresh] = groups_.try_emplace(Placement::rounded(length), static_cast<uint32_t>(all_groups_.size()));
  if (fresh) all_groups_.push_back(at->second), looks_wait_.push_back(0);
  return at->second;
}

std::optional<uint64_t> StoreMachine::place(uint32_t index) {
  return placement_.place(entries_[index].blob.dense, entries_[index].blob.length, index);
}

/// Takes exactly the place that a former store gave it.
bool StoreMachine::claim(uint32_t index, uint64_t offset) {
  const MachineBlob& blob = entries_[index].blob;
  return blob.streamed ? window_.take_at(offset) : placement_.claim(blob.dense, offset, blob.length, index);
}

void StoreMachine::free_place(uint32_t index, uint64_t offset) {
  const MachineBlob& blob = entries_[index].blob;
  if (blob.streamed) window_.give_back(offset);
  else placement_.give_back(blob.dense, offset, blob.length);
}

/// None if too much is pinned, or kept for others, or used sooner than what is to be read ahead. What the store itself
/// reads takes only what is free.
std::optional<uint64_t> StoreMachine::make_room(const RoomFor& what, Actions& actions) {
  Shares::Eviction why{.wanting = owners_of(what.entry)};
  for (const bool shared_too : {false, true}) {
    why.shared_too = shared_too;
    do {
      why.over = shares_.over_maximum(why.wanting, entries_[what.entry].blob.length);
      if (why.over != 0) continue;
      if (const auto offset = place(what.entry)) return offset;
    } while (what.read_class != ReadClass::kScrub && evict_for(what, why, actions));
  }
  return std::nullopt;
}

/// One step towards room; false if there is none to take.
bool StoreMachine::evict_for(const RoomFor& what, const Shares::Eviction& why, Actions& actions) {
  const uint32_t index = what.entry;
  const bool demand = what.read_class == ReadClass::kDemand;
  policy::Wanted wanted{all_groups_, watch_.now()};
  if (why.over != 0) return evict_one(wanted, what, why, actions);  // of any length: it is the sum that counts
  const MachineBlob& blob = entries_[index].blob;
  if (!blob.dense) {
    const std::array<uint32_t, 1> own{group_of(blob.length)};
    wanted.groups = own;
    if (demand && another_segment_is_colder(index, why, actions)) return true;
    if (evict_one(wanted, what, why, actions)) return true;
  }
  if (!demand) return false;
  return empty_segments(index, why, kAnyHeat, Sparing::kShares, actions) ||
         (why.shared_too && press_together(index, why, actions));
}

/// Try_evict() has said yes.
void StoreMachine::evicted(uint32_t index, Actions& actions) {
  policy_->removed(index);
  count_waste(index);
  give_back(index, actions);
  set_state(index, Residency::kAbsent);
  queue_.queue_again(index);  // who asked for it while it was ADOPTED, and has no pin there, waits for a read now
  ++counters_.evictions;
}

/// What the policy alone would evict. It stays.
std::optional<uint32_t> StoreMachine::coldest(std::span<const uint32_t> groups, const Shares::Eviction& why) {
  return policy_->victim({groups, watch_.now()}, [this, &why](uint32_t index) -> policy::Verdict {
    const Entry& entry = entries_[index];
    if (!shares_.may_evict(entry.charged, entry.blob.length, why)) return {Kind::kSpared, {}};
    if (const auto use = news_of(index)) return {Kind::kUsed, *use};
    return {shared_.pinned(index) ? Kind::kInUse : Kind::kTake, {}};
  });
}

bool StoreMachine::another_segment_is_colder(uint32_t index, const Shares::Eviction& why, Actions& actions) {
  const uint64_t length = entries_[index].blob.length;
  if (!placement_.segments().has_others(length)) return false;
  const std::array<uint32_t, 1> own{group_of(length)};
  uint32_t& wait = looks_wait_[own[0]];
  if (wait > 0) return --wait, false;
  const auto first = coldest(own, why);
  if (!first) return false;
  if (empty_segments(index, why, kWorthwhile * policy_->heat(*first, watch_.now()), Sparing::kShares, actions))
    return true;
  wait = std::max(kEvictionsBetweenLooks, static_cast<uint32_t>(entries_.size()) / kEntriesPerEviction);
  return false;
}

/// Empties the segments, as many as `index` needs beside each other, whose contents are worth least a byte, if that is
/// below `limit`.
bool StoreMachine::empty_segments(uint32_t index, const Shares::Eviction& why, double limit, Sparing sparing,
                                  Actions& actions) {
  const MachineBlob& blob = entries_[index].blob;
  const SegmentAllocator& segments = placement_.segments();
  const uint64_t own = blob.dense ? 0 : blob.length;
  const uint32_t span = placement_.span_of(blob.length), step = blob.dense ? 1 : span;  // dense: wherever it fits
  if (!segments.has_others(own)) return false;
  std::vector<std::pair<double, uint32_t>> worth;  // of what lies there, first segment
  std::vector<SegmentAllocator::Occupant> there;
  for (uint32_t first = 0; first + span <= segments.segments(); first += step) {
    if (!segments.occupants(first, span, own, there) || there.empty()) continue;
    if (const auto heat = heat_of(there))
      worth.emplace_back(*heat / static_cast<double>(span * segments.segment_bytes()), first);
  }
  std::ranges::sort(worth);
  for (const auto& [value, first] : worth) {
    if (value >= limit) return false;
    segments.occupants(first, span, own, there);
    const bool promised = std::ranges::any_of(there, [this](const auto& o) { return entries_[o.key].ahead; });
    if ((promised && limit < kAnyHeat) || !may_go(there, why, sparing)) continue;
    bool all = true;
    for (const auto& occupant : there) {
      if (try_evict(occupant.key)) evicted(occupant.key, actions);
      else all = false;  // pinned since
    }
    if (all) return ++counters_.segments_emptied, true;
  }
  return false;
}

/// Of all of them, by the byte; none if one of them is being read.
std::optional<double> StoreMachine::heat_of(std::span<const SegmentAllocator::Occupant> there) {
  double heat = 0;
  for (const auto& occupant : there) {
    const Residency state = entries_[occupant.key].state;
    if (state != Residency::kResident && state != Residency::kAdopted) return std::nullopt;
    if (const auto use = news_of(occupant.key)) policy_->used(occupant.key, *use);
    heat += policy_->heat(occupant.key, watch_.now()) * static_cast<double>(occupant.slot_bytes);
  }
  return heat;
}

bool StoreMachine::may_go(std::span<const SegmentAllocator::Occupant> there, const Shares::Eviction& why,
                          Sparing sparing) {
  if (std::ranges::any_of(there, [this](const auto& occupant) { return shared_.pinned(occupant.key); })) return false;
  if (sparing == Sparing::kRoomElsewhere) {
    std::map<uint64_t, uint32_t> needed;  // free slots by class, those of the segments that go among them
    for (size_t i = 0; i < there.size(); ++i)
      if (i == 0 || there[i].block != there[i - 1].block)
        needed[there[i].slot_bytes] += placement_.segments().slots_of(there[i].slot_bytes);
    return std::ranges::all_of(needed,
                               [this](const auto& c) { return placement_.segments().free_slots(c.first) >= c.second; });
  }
  bool may = true;  // one after another, as they would go
  size_t gone = 0;
  for (; may && gone < there.size(); ++gone) {
    const Entry& entry = entries_[there[gone].key];
    may = shares_.may_evict(entry.charged, entry.blob.length, why);
    shares_.remove(entry.charged, entry.blob.length);
  }
  while (gone-- > 0) shares_.add(entries_[there[gone].key].charged, entries_[there[gone].key].blob.length);
  return may;
}

/// What is guaranteed to models lies scattered over segments that have room for more. A segment is emptied whose blobs
/// would find a place in the others; until there is one, whatever is guaranteed to nobody goes.
bool StoreMachine::press_together(uint32_t index, const Shares::Eviction& why, Actions& actions) {
  if (!shares_.any_guarantee() || !placement_.segments().has_others(entries_[index].blob.length)) return false;
  if (empty_segments(index, why, kAnyHeat, Sparing::kRoomElsewhere, actions)) return true;
  return evict_one({all_groups_, watch_.now()}, {index, ReadClass::kDemand}, why, actions);
}

void StoreMachine::give_back(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  MOESTRO_CHECK(!entry.leased, "a place is given back that leases look at");
  no_longer_ahead(index);
  discharge(index);
  free_place(index, entry.offset);
  entry.placed = false;
  if (options_.poison_freed)
    actions.push_back({.kind = Action::Kind::kPoison,
                       .entry = index,
                       .offset = entry.offset,
                       .length = Placement::rounded(entry.blob.length)});
}

/// Why a pinned blob is never evicted. A worker stores its pin word, then loads the table word; the store stores
/// EVICTING, then loads every worker's pin word. All four are sequentially consistent, so they have one order that
/// everyone agrees on:
///  - the worker's store comes before the store's load of that word: the store sees the pin and puts RESIDENT back;
///  - or it comes after it, hence after EVICTING: the worker's load, later still, sees EVICTING (or what follows) and
///  it lets go.
/// Both may give way at once, which costs the worker a message and the store a victim; never can both go on. A worker
/// that saw RESIDENT before EVICTING has its pin word set already. It reads the offset only after it saw RESIDENT, and
/// the offset changes only between ABSENT and RESIDENT, which cannot happen while its word is set.
bool StoreMachine::try_evict(uint32_t index) {
  if (shared_.pinned(index)) return false;  // spares workers a needless EVICTING
  const Residency before =
      entries_[index].state;  // kResident, or kAdopted: leases of before the adoption are pins like others
  set_state(index, Residency::kEvicting);
  MOESTRO_FAULT_POINT("evicting");
  if (!shared_.pinned(index)) return entries_[index].leased = false, true;
  set_state(index, before);  // same generation: nothing happened
  return false;
}

}  // namespace moestro::store
