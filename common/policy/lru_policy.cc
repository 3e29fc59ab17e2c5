#include "common/policy/lru_policy.h"

namespace moestro::policy {

void LruPolicy::inserted(uint32_t key, uint64_t stamp) {
  removed(key);
  stamps_[key] = stamp;
  by_stamp_.emplace(stamp, key);
}

void LruPolicy::used(uint32_t key, uint64_t stamp) {
  const auto known = stamps_.find(key);
  if (known == stamps_.end() || known->second >= stamp) return;
  by_stamp_.erase({known->second, key});
  by_stamp_.emplace(stamp, key);
  known->second = stamp;
}

void LruPolicy::removed(uint32_t key) {
  const auto known = stamps_.find(key);
  if (known == stamps_.end()) return;
  by_stamp_.erase({known->second, key});
  stamps_.erase(known);
}

std::optional<uint32_t> LruPolicy::victim(const std::function<Verdict(uint32_t, uint64_t)>& judge) {
  // Known stamps only lag behind the true ones. So an entry at the front whose known stamp is its true one is the oldest of all.
  // An entry in constant use is newer each time it is asked about, hence the bound.
  size_t refreshes = 2 * by_stamp_.size();
  auto at = by_stamp_.begin();
  while (at != by_stamp_.end()) {
    const auto [stamp, key] = *at;
    const Verdict verdict = judge(key, stamp);
    if (verdict.kind == Verdict::Kind::kTake) return key;
    if (verdict.kind == Verdict::Kind::kNewer && verdict.stamp > stamp) {
      if (refreshes-- == 0) return std::nullopt;
      used(key, verdict.stamp);
      at = by_stamp_.upper_bound({stamp, key});  // it comes up again in its new place, if nothing older is taken
    } else {
      ++at;
    }
  }
  return std::nullopt;
}

}  // namespace moestro::policy
