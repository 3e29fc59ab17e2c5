#pragma once
// Least recently used first. inserted, used, removed: O(log n).

#include <set>
#include <unordered_map>
#include <utility>

#include "common/policy/cache_policy.h"

namespace moestro::policy {

class LruPolicy final : public CachePolicy {
 public:
  void inserted(uint32_t key, uint64_t stamp) override;
  void used(uint32_t key, uint64_t stamp) override;
  void removed(uint32_t key) override;
  std::optional<uint32_t> victim(const std::function<Verdict(uint32_t, uint64_t)>& judge) override;

 private:
  std::set<std::pair<uint64_t, uint32_t>> by_stamp_;
  std::unordered_map<uint32_t, uint64_t> stamps_;
};

}  // namespace moestro::policy
