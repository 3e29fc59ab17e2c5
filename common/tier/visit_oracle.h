#pragma once
// Belady's oracle for a device cache: of the experts that are not needed now, it evicts the one whose next visit is
// furthest in the future. It is given the future as visits, one for each layer of a step, and follows them by
// at_layer().

#include <vector>

#include "common/policy/cache_policy.h"
#include "common/tier/visits.h"

namespace moestro::tier {

class VisitOracle final : public policy::CachePolicy {
 public:
  VisitOracle(std::span<const Visit> visits, size_t keys) : index_(visits, keys) {}
  std::string_view name() const override { return "belady"; }
  void inserted(uint32_t key, uint32_t group, const policy::Use& use, bool predicted) override;
  void used(uint32_t, const policy::Use&) override {}
  void removed(uint32_t key) override;
  std::optional<uint32_t> victim(const policy::Wanted& wanted, const policy::Judge& judge) override;
  void at_layer(int32_t layer) override;
  double heat(uint32_t key, double now) const override;

 private:
  size_t next(uint32_t key) const { return index_.next(key, visit_ + 1); }

  VisitIndex index_;
  std::vector<uint32_t> members_;
  std::vector<std::pair<size_t, uint32_t>> order_;  ///< of one search
  size_t visit_ = 0;
  bool began_ = false;
};

}  // namespace moestro::tier
