// What becomes of the table of a store that was killed.
//
// Every wait of that store may have been cut off anywhere, so each state is taken for the least that it promises:
//  - RESIDENT, ADOPTED: its range holds the blob. Workers that have it pinned read it now, and go on. Nobody has proved
//  to this store
//    that the bytes are still right, so it becomes ADOPTED: a miss for whoever comes, until its check is done.
//  - EVICTING: the dead store had told the workers and may not have looked at their pins yet. This store looks now,
//  which is the second
//    half of try_evict(): a worker that saw RESIDENT before EVICTING has its word set, and whoever set it since sees
//    EVICTING and lets go. Pinned: ADOPTED, like RESIDENT. Not pinned: free.
//  - LOADING, BAD: part of the bytes, or wrong ones. The reads have ended, or this store would not hold store.lock.
//  Free, and read when it
//    is wanted: a pin is only the wish to have it, whose worker asks again. But a blob that was damaged is read again
//    where it lies, under the leases of before, and keeps its place under them if that fails (failed_loads.cc). So one
//    that has been resident, is pinned and has a place by the table is read there again.
//  - ALIAS: stays one; the content that makes it one is known from the table, and its bytes are checked where they lie.
// A LOADING may be a blob that was found wrong by a store which died before it noted that. So it is noted for each of
// them: whoever has a copy of one makes it again.
// Pins count only of slots whose lock is held: what a dead worker had pinned is pinned by nobody.

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/fault_point.h"
#include "store/machine/store_machine.h"

namespace moestro::store {
namespace {

/// It was being read where it lay before, or could not be.
bool may_be_leased(const StoreMachine::Former& found) {
  const auto state = static_cast<Residency>(found.state);
  return (state == Residency::kLoading || state == Residency::kBad) && found.content.known() &&
         found.offset != kNoPlace;
}

/// By their manifests.
bool same_bytes(const MachineBlob& a, const MachineBlob& b) {
  return a.format == b.format && a.length == b.length && a.claim == b.claim;
}

}  // namespace

/// What was known to be equal stays so: workers have followed the aliases already. Blobs of equal content have equal
/// checksums, so the manifest of an alias has the last word: the bytes of the first one are checked against those.
Status StoreMachine::learn_former(const std::vector<Former>& former) {
  const auto key = [&](uint32_t index) {
    return ContentKey{former[index].content, entries_[index].blob.length, entries_[index].blob.format};
  };
  const auto is_alias = [&](uint32_t index) {
    return entries_[index].used && former[index].state == static_cast<uint8_t>(Residency::kAlias);
  };
  for (uint32_t index = 0; index < former.size(); ++index)
    if (entries_[index].used && !is_alias(index) && contents_.learn(index, key(index)))
      return corrupt("table entry " + std::to_string(index) + " has the content of another one");
  for (uint32_t index = 0; index < former.size(); ++index) {
    if (!is_alias(index)) continue;
    const uint32_t first = former[index].alias - 1;
    if (first >= former.size() || !entries_[first].used || is_alias(first) ||
        !same_bytes(entries_[first].blob, entries_[index].blob) || contents_.learn(index, key(first)) != first)
      return corrupt("table entry " + std::to_string(index) + " is an alias of nothing");
  }
  return Status::ok();
}

Status StoreMachine::claim_range(uint32_t index, const Former& found) {
  Entry& entry = entries_[index];
  if (claim(index, found.offset)) {
    entry.offset = found.offset, entry.placed = entry.leased = true;
    return Status::ok();
  }
  return corrupt("table entry " + std::to_string(index) + " lies at " + std::to_string(found.offset) +
                 ", where it cannot lie or something else does");
}

/// Takes the ranges of all that is kept. An error leaves this machine half changed, and shared memory as it was.
Status StoreMachine::claim_former(const std::vector<Former>& former, std::vector<bool>& kept) {
  if (former.size() != entries_.size())
    return corrupt("its table has " + std::to_string(former.size()) + " entries, this store's has " +
                   std::to_string(entries_.size()));
  for (Entry& entry : entries_)  // dense weights lie where they lay, which sharing may have changed
    if (std::exchange(entry.placed, false)) placement_.give_back(true, entry.offset, entry.blob.length);
  for (uint32_t index = 0; index < former.size(); ++index) {
    const Former& found = former[index];
    if (found.state > static_cast<uint8_t>(Residency::kAdopted))
      return corrupt("table entry " + std::to_string(index) +
                     " has a state that does not exist: " + std::to_string(found.state));
    const auto state = static_cast<Residency>(found.state);
    entries_[index].generation = found.generation;
    if (!entries_[index].used) continue;
    const bool whole = state == Residency::kResident || state == Residency::kAdopted;
    kept[index] = whole || ((state == Residency::kEvicting || may_be_leased(found)) && shared_.pinned(index));
    if (!kept[index]) continue;
    if (!found.content.known()) return corrupt("table entry " + std::to_string(index) + " holds nobody knows what");
    MOESTRO_RETURN_IF_ERROR(claim_range(index, found));
  }
  MOESTRO_RETURN_IF_ERROR(learn_former(former));
  for (uint32_t index = 0; index < former.size(); ++index) {
    Entry& entry = entries_[index];
    if (!entry.blob.stays() || kept[index]) continue;
    if (contents_.is_alias(index)) {
      entry.offset = 0, expert_bytes_ += Placement::rounded(entry.blob.length);
      continue;
    }
    const auto offset = place(index);  // none: it gets room by eviction, as that of a pack that is added
    if (offset) entry.offset = *offset, entry.placed = true;
  }
  return Status::ok();
}

Result<Actions> StoreMachine::adopt(const std::vector<Former>& former) {
  std::vector<bool> kept(former.size(), false);
  MOESTRO_RETURN_IF_ERROR(claim_former(former, kept));
  std::vector<uint32_t> order(former.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](uint32_t index) {  // dense weights are what an attach waits for
    return std::pair(entries_[index].blob.dense, former[index].last_use);
  });
  watch_.tick();
  watch_.rebase();
  Actions actions;
  for (const uint32_t index : order) publish_former(index, former[index], kept[index], actions);
  shares_held_ = false;
  share_out();
  return actions;
}

void StoreMachine::publish_former(uint32_t index, const Former& found, bool kept, Actions& actions) {
  MOESTRO_FAULT_POINT("adopting");
  Entry& entry = entries_[index];
  if (kept && may_be_leased(found)) return read_where_it_lies(index, actions);
  if (kept) {
    if (!entry.blob.dense) note_adopted(index);
    entry.load = ++loads_begun_;
    charge(index);
    set_state(index, Residency::kAdopted);
    ++counters_.adopted, counters_.adopted_bytes += entry.blob.length;
    actions.push_back(check_of(index));
    return;
  }
  if (static_cast<Residency>(found.state) == Residency::kLoading) shared_.note_wrong(index);
  if (!entry.used) return stands_for_nothing(index);
  set_state(index, contents_.is_alias(index) ? Residency::kAlias : Residency::kAbsent);
  const bool evicted = static_cast<Residency>(found.state) == Residency::kEvicting;
  if (!evicted || !options_.poison_freed || !claim(index, found.offset))
    return;
  free_place(index, found.offset);  // it was free whole
  actions.push_back(
      {.kind = Action::Kind::kPoison, .entry = index, .offset = found.offset, .length = entry.blob.length});
}

/// What the pin words of the workers that are left say about it. Called in the order of their last uses, which recency
/// goes by.
void StoreMachine::note_adopted(uint32_t index) {
  const double time = watch_.now() + 1e-6 * static_cast<double>(counters_.adopted);
  policy_->inserted(index, group_of(entries_[index].blob.length),
                    {time, std::max(1.0, shared_.uses(index).sixteenths / 16.0)});
}

Action StoreMachine::check_of(uint32_t index) const {
  const Entry& entry = entries_[index];
  return {.kind = Action::Kind::kCheck,
          .entry = index,
          .offset = entry.offset,
          .length = entry.blob.length,
          .load = entry.load};
}

Actions StoreMachine::checked(uint32_t index, uint64_t check, bool right) {
  Actions actions;
  Entry& entry = entries_[index];
  if (entry.state != Residency::kAdopted || entry.load != check) return actions;  // evicted meanwhile
  if (!right) {
    ++counters_.damaged;
    if (!entry.blob.dense) policy_->removed(index);
    read_where_it_lies(index, actions);
    return actions;
  }
  note_claim(index, index);
  set_state(index, Residency::kResident);
  tell(index, Code::kOk, actions);
  if (sweep_again_) sweep(actions);
  schedule(actions);
  return actions;
}

void StoreMachine::attached(uint32_t slot, uint64_t reserve, uint32_t model) {
  workers_[slot] = WorkerNeed{Placement::rounded(reserve), model};
  share_out();
}

}  // namespace moestro::store
