// Whose bytes are whose, and how many of them each worker may pin (shares.h has the arithmetic).

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "store/machine/store_machine.h"

namespace moestro::store {

void StoreMachine::set_model_share(uint32_t model, ModelShare share) {
  shares_.set_bounds(model, share);
  share_out();
}

void StoreMachine::set_owners(uint32_t first, uint32_t count, ModelMask owners) {
  for (uint32_t index = first; index < first + count; ++index) entries_[index].owners = owners;
  charge_anew();
  share_out();
}

/// All models that have these bytes, through whichever entry.
ModelMask StoreMachine::owners_of(uint32_t index) const {
  ModelMask owners = entries_[index].owners;
  if (contents_.aliases() > 0)
    for (const uint32_t holder : contents_.holders(index)) owners |= entries_[holder].owners;
  return owners;
}

/// `index` has a place in the arena from now on.
void StoreMachine::charge(uint32_t index) {
  discharge(index);
  Entry& entry = entries_[index];
  if (entry.blob.streamed) return;  // the window is everybody's
  entry.charged = owners_of(index);
  shares_.add(entry.charged, entry.blob.length);
}

void StoreMachine::discharge(uint32_t index) {
  Entry& entry = entries_[index];
  shares_.remove(std::exchange(entry.charged, 0), entry.blob.length);
}

/// Owners have changed: what is in the arena counts for those of now.
void StoreMachine::charge_anew() {
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    const Residency state = entries_[index].state;
    if (state == Residency::kResident || state == Residency::kAdopted || state == Residency::kLoading ||
        entries_[index].held)
      charge(index);
  }
}

/// Of all experts that are served.
std::set<uint64_t> StoreMachine::expert_lengths() const {
  std::set<uint64_t> lengths;
  for (const Entry& entry : entries_)
    if (entry.used && !entry.going && !entry.blob.dense) lengths.insert(Placement::rounded(entry.blob.length));
  return lengths;
}

/// By model, for those that have workers or a guarantee, or experts of another length than other models; `slots` says
/// which worker each reserve belongs to.
std::vector<PinGroup> StoreMachine::pin_groups(uint64_t each, std::vector<std::vector<uint32_t>>& slots) const {
  std::array<uint64_t, kModelsMax> dense{};
  std::array<std::set<uint64_t>, kModelsMax> lengths;
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    if (!entry.used || contents_.is_alias(index)) continue;
    const ModelMask owners = owners_of(index);
    for (ModelMask left = owners; left != 0; left &= left - 1) {
      const auto model = static_cast<size_t>(std::countr_zero(left));
      if (entry.blob.stays()) dense[model] += entry.blob.length / static_cast<uint64_t>(std::popcount(owners));
      else if (!entry.blob.dense) lengths[model].insert(Placement::rounded(entry.blob.length));
    }
  }
  std::vector<PinGroup> groups;
  for (uint32_t model = 0; model < kModelsMax; ++model) {
    const ModelShare& bounds = shares_.bounds(model);
    PinGroup group;
    group.largest = lengths[model].empty() ? 0 : *lengths[model].rbegin();
    if (bounds.guaranteed > dense[model] && group.largest > 0) group.guaranteed = bounds.guaranteed - dense[model];
    if (bounds.maximal != UINT64_MAX) group.maximal = bounds.maximal > dense[model] ? bounds.maximal - dense[model] : 0;
    std::vector<uint32_t> own;
    for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
      if (workers_[slot] && workers_[slot]->model == model)
        group.reserves.push_back(workers_[slot]->reserve), own.push_back(slot);
    if (each > 0) count_in_blocks(group, each, lengths[model]);
    if (own.empty() && group.guaranteed == 0) continue;
    groups.push_back(std::move(group));
    slots.push_back(std::move(own));
  }
  return groups;
}

/// Where each pin counts as a block of the longest kind (placement.h). What is guaranteed can keep at most so many
/// blocks from being emptied: for each length those that it fills, one that is filled in part, and one more, for blocks
/// that are nearly empty are pressed together (press_together()). A model that no worker serves yet keeps one block for
/// the first.
void StoreMachine::count_in_blocks(PinGroup& group, uint64_t each, const std::set<uint64_t>& lengths) const {
  if (group.maximal != UINT64_MAX && group.largest > 0) group.maximal = group.maximal / group.largest * each;
  for (uint64_t& reserve : group.reserves) reserve = std::max(reserve, each);
  if (group.guaranteed > 0) {
    uint64_t blocks = 0;
    for (const uint64_t length : lengths) {
      const uint64_t block = placement_.segments().slots_of(length) * length;
      blocks = std::max(blocks, group.guaranteed / block + 1);
    }
    group.guaranteed = (blocks + lengths.size() * 2) * each;
    group.largest = each;
  } else if (group.reserves.empty() && !lengths.empty()) {
    group.guaranteed = each, group.largest = 0;
  }
}

/// Everyone has room for one expert, every model what it is guaranteed; what is left is split evenly. A worker never
/// pins more than its share, so a worker whose share is not used up always finds something that can be evicted: nobody
/// waits for room while others hold it and wait. `more`: as if these blobs were served too.
StoreMachine::PinSplit StoreMachine::split_pins(const std::vector<MachineBlob>& more) const {
  std::set<uint64_t> lengths = expert_lengths();
  std::vector<uint64_t> dense;
  for (uint32_t index = 0; index < entries_.size(); ++index)
    if (entries_[index].used && entries_[index].blob.stays() && !entries_[index].placed && !contents_.is_alias(index))
      dense.push_back(entries_[index].blob.length);
  uint64_t left = expert_bytes_;
  for (const MachineBlob& blob : more) {
    const uint64_t length = Placement::rounded(blob.length);
    if (!blob.dense) lengths.insert(length);
    else if (!blob.streamed) dense.push_back(length), left -= std::min(left, length);
  }
  PinSplit split{.each = placement_.pin_bytes_min(lengths)};
  const uint64_t bytes = std::min(placement_.pin_bytes_max(lengths, dense), left);
  std::vector<std::vector<uint32_t>> slots;
  std::vector<PinGroup> groups = pin_groups(split.each, slots);
  auto shares = pin_shares(bytes, groups);
  if (!shares && split.each > 0) {  // then nothing is kept for models without workers
    for (PinGroup& group : groups)
      if (group.reserves.empty() && group.largest == 0) group.guaranteed = 0;
    shares = pin_shares(bytes, groups);
  }
  for (size_t group = 0; group < groups.size(); ++group)
    for (size_t i = 0; i < slots[group].size(); ++i)
      split.of_slot[slots[group][i]] = shares ? (*shares)[group][i] : groups[group].reserves[i];
  split.fits = shares.status();
  if (!lengths.empty() && bytes < *lengths.rbegin()) split.fits = exhausted("no room is left for its longest expert");
  return split;
}

Status StoreMachine::attach(uint32_t slot, uint64_t reserve, const std::string& name, uint32_t model) {
  workers_[slot] = WorkerNeed{Placement::rounded(reserve), model};
  if (const uint32_t places = window_.shape().places; places > 0 && attached_workers() > places) {
    workers_[slot].reset();
    return exhausted("no room for worker '" + name + "': dense weights take turns in " + std::to_string(places) +
                     " places, one for each worker at least; raise --dram or run fewer workers");
  }
  if (const Status fits = split_pins().fits; !fits) {
    workers_[slot].reset();
    return exhausted("no room for worker '" + name + "': " + fits.message() + "; raise --dram or run fewer workers");
  }
  share_out();
  return Status::ok();
}

/// Where dense weights of a pack added since have left too little, workers fall back to their reserves.
void StoreMachine::share_out() {
  if (shares_held_) return;
  const PinSplit split = split_pins();
  shared_.set_pin_bytes_min(split.each);
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) shared_.set_share(slot, split.of_slot[slot]);
  share_window();
}

}  // namespace moestro::store
