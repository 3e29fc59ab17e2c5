#pragma once
// Evicts any entry with equal chance: the baseline without knowledge. Seeded, so a run can be repeated.

#include <random>
#include <vector>

#include "common/policy/cache_policy.h"

namespace moestro::policy {

struct RandomOptions {
  uint64_t seed = 1;
};

class RandomPolicy final : public CachePolicy {
 public:
  explicit RandomPolicy(RandomOptions options = {}) : random_(options.seed) {}
  std::string_view name() const override { return "random"; }
  void inserted(uint32_t key, uint32_t group, const Use& use, bool predicted) override;
  void used(uint32_t, const Use&) override {}
  void removed(uint32_t key) override;
  std::optional<uint32_t> victim(const Wanted& wanted, const Judge& judge) override;
  double heat(uint32_t key, double) const override { return at_.size() > key && at_[key] != kNowhere ? 1 : 0; }

 private:
  static constexpr uint32_t kNowhere = UINT32_MAX;
  uint32_t member(std::span<const uint32_t> groups, size_t number) const;

  std::mt19937_64 random_;
  std::vector<std::vector<uint32_t>> groups_;
  std::vector<uint32_t> at_, group_of_;  ///< by key
};

}  // namespace moestro::policy
