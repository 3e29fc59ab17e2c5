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
    if (state == Residency::kResident || state == Residency::kAdopted || state == Residency::kLoading) charge(index);
  }
}

/// By model, for those that have workers or a guarantee; `slots` says which worker each reserve belongs to.
std::vector<PinGroup> StoreMachine::pin_groups(std::vector<std::vector<uint32_t>>& slots) const {
  std::array<uint64_t, kModelsMax> dense{}, largest{};
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    if (!entry.used || contents_.is_alias(index)) continue;
    const ModelMask owners = owners_of(index);
    for (ModelMask left = owners; left != 0; left &= left - 1) {
      const auto model = static_cast<size_t>(std::countr_zero(left));
      if (entry.blob.dense) dense[model] += entry.blob.length / static_cast<uint64_t>(std::popcount(owners));
      else largest[model] = std::max(largest[model], ranges_.rounded(entry.blob.length));
    }
  }
  std::vector<PinGroup> groups;
  for (uint32_t model = 0; model < kModelsMax; ++model) {
    const ModelShare& bounds = shares_.bounds(model);
    PinGroup group;
    group.largest = largest[model];
    if (bounds.guaranteed > dense[model] && largest[model] > 0) group.guaranteed = bounds.guaranteed - dense[model];
    if (bounds.maximal != UINT64_MAX) group.maximal = bounds.maximal > dense[model] ? bounds.maximal - dense[model] : 0;
    std::vector<uint32_t> own;
    for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
      if (workers_[slot] && workers_[slot]->model == model) group.reserves.push_back(workers_[slot]->reserve), own.push_back(slot);
    if (own.empty() && group.guaranteed == 0) continue;
    groups.push_back(std::move(group));
    slots.push_back(std::move(own));
  }
  return groups;
}

Status StoreMachine::attach(uint32_t slot, uint64_t reserve, const std::string& name, uint32_t model) {
  workers_[slot] = WorkerNeed{ranges_.rounded(reserve), model};
  std::vector<std::vector<uint32_t>> slots;
  if (const auto fits = pin_shares(expert_bytes_, pin_groups(slots)); !fits) {
    workers_[slot].reset();
    return exhausted("no room for worker '" + name + "': " + fits.status().message() + "; raise --dram or run fewer workers");
  }
  share_out();
  return Status::ok();
}

/// Everyone has room for one expert, every model what it is guaranteed; what is left is split evenly. A worker never pins more than its
/// share, so a worker whose share is not used up always finds something that can be evicted: nobody waits for room while others hold it
/// and wait. Where dense weights of a pack added since have left too little, workers fall back to their reserves.
void StoreMachine::share_out() {
  std::vector<std::vector<uint32_t>> slots;
  const std::vector<PinGroup> groups = pin_groups(slots);
  const auto shares = pin_shares(expert_bytes_, groups);
  std::array<uint64_t, kWorkerSlotsMax> of_slot{};
  for (size_t group = 0; group < groups.size(); ++group)
    for (size_t i = 0; i < slots[group].size(); ++i) of_slot[slots[group][i]] = shares ? (*shares)[group][i] : groups[group].reserves[i];
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) shared_.set_share(slot, of_slot[slot]);
}

}  // namespace moestro::store
