#pragma once
// What knows the future: the experts that a device will need, visit after visit, and Belady's oracle for its cache. Of
// the experts that are not needed now, it evicts the one whose next visit is furthest away.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/policy/cache_policy.h"
#include "common/tier/device_tier.h"

namespace moestro::tier {

/// A visit is one layer of one step.
class Visits {
 public:
  static constexpr size_t kNever = SIZE_MAX;
  explicit Visits(size_t keys) : of_key_(keys) {}
  /// `keys`: each once.
  void add(std::vector<Key> keys);
  size_t size() const { return visits_.size(); }
  size_t keys() const { return of_key_.size(); }
  std::span<const Key> operator[](size_t visit) const { return visits_[visit]; }
  /// The first visit of `key` at `from` or later; kNever if there is none.
  size_t next(Key key, size_t from) const;

 private:
  std::vector<std::vector<Key>> visits_;
  std::vector<std::vector<size_t>> of_key_;
};

/// Follows the visits by at_layer().
class VisitOracle : public policy::CachePolicy {
 public:
  /// `visits` outlives it.
  explicit VisitOracle(const Visits& visits);
  std::string_view name() const override { return "belady"; }
  void inserted(uint32_t key, uint32_t group, const policy::Use& use, bool predicted) override;
  void used(uint32_t, const policy::Use&) override {}
  void removed(uint32_t key) override { std::erase(members_, key); }
  std::optional<uint32_t> victim(const policy::Wanted& wanted, const policy::Judge& judge) override;
  void at_layer(int32_t layer) override;
  double heat(uint32_t key, double now) const override;

 protected:
  const Visits& visits() const { return visits_; }
  /// Visits whose routers have run.
  size_t begun() const { return begun_; }
  /// The first visit of `key` among the others.
  size_t next(Key key) const { return next_[key]; }
  const std::vector<Key>& members() const { return members_; }

 private:
  const Visits& visits_;
  std::vector<size_t> next_;  ///< by key
  std::vector<Key> members_;
  std::vector<std::pair<size_t, Key>> order_;  ///< of one search
  size_t begun_ = 0;
};

}  // namespace moestro::tier
