#include "store/machine/shares.h"

#include <algorithm>

namespace moestro::store {
namespace {

template <typename Do>
void for_each_model(ModelMask mask, Do&& act) {
  for (; mask != 0; mask &= mask - 1) act(static_cast<uint32_t>(std::countr_zero(mask)));
}

/// What a group keeps from the others: its workers' reserves, or its guarantee and one blob, for an eviction stops
/// short of it by less.
uint64_t floor_of(const PinGroup& group, uint64_t reserves) {
  return std::max(reserves, group.guaranteed > 0 ? group.guaranteed + group.largest : 0);
}

}  // namespace

void Shares::add(ModelMask owners, uint64_t bytes) {
  for_each_model(owners, [&](uint32_t model) { models_[model].used += part(owners, bytes); });
}

void Shares::remove(ModelMask owners, uint64_t bytes) {
  for_each_model(owners, [&](uint32_t model) { models_[model].used -= part(owners, bytes); });
}

ModelMask Shares::over_maximum(ModelMask owners, uint64_t bytes) const {
  ModelMask over = 0;
  for_each_model(owners, [&](uint32_t model) {
    const Model& m = models_[model];
    const uint64_t more = part(owners, bytes);
    if (m.bounds.maximal < more || m.used > m.bounds.maximal - more) over |= ModelMask{1} << model;
  });
  return over;
}

bool Shares::may_evict(ModelMask owners, uint64_t bytes, const Eviction& why) const {
  if (why.over != 0 && (owners & why.over) == 0) return false;
  if (why.shared_too && std::popcount(owners) > 1) return true;
  bool keeps = true;
  for_each_model(owners & ~why.wanting, [&](uint32_t model) {
    const Model& m = models_[model];
    keeps = keeps && (m.bounds.guaranteed == 0 || m.used >= m.bounds.guaranteed + part(owners, bytes));
  });
  return keeps;
}

bool Shares::any_guarantee() const {
  return std::ranges::any_of(models_, [](const Model& m) { return m.bounds.guaranteed > 0; });
}

Result<std::vector<std::vector<uint64_t>>> pin_shares(uint64_t expert_bytes, const std::vector<PinGroup>& groups) {
  uint64_t kept = 0, workers = 0;
  for (const PinGroup& group : groups) {
    uint64_t reserves = 0;
    for (const uint64_t reserve : group.reserves) reserves += reserve;
    if (reserves > group.maximal)
      return exhausted("its " + std::to_string(group.reserves.size()) + " workers need " + std::to_string(reserves) +
                       " bytes for one expert each, its maximum in store.shares leaves " +
                       std::to_string(group.maximal));
    kept += floor_of(group, reserves);
    workers += group.reserves.size();
  }
  if (kept > expert_bytes)
    return exhausted(std::to_string(workers) + " workers need " + std::to_string(kept) +
                     " bytes for one expert each and what is guaranteed, the arena has " +
                     std::to_string(expert_bytes) + " for experts");
  std::vector<std::vector<uint64_t>> shares;
  for (const PinGroup& group : groups) {
    std::vector<uint64_t>& own = shares.emplace_back();
    const uint64_t count = group.reserves.size();
    if (count == 0) continue;
    uint64_t reserves = 0;
    for (const uint64_t reserve : group.reserves) reserves += reserve;
    const uint64_t common = (expert_bytes - kept) / workers;
    const uint64_t each =
        std::min((floor_of(group, reserves) - reserves) / count + common, (group.maximal - reserves) / count);
    for (const uint64_t reserve : group.reserves) own.push_back(reserve + each);
  }
  return shares;
}

}  // namespace moestro::store
