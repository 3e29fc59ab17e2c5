#pragma once
// Evicts the least recently used entry.

#include "common/policy/ranked_policy.h"

namespace moestro::policy {

struct LruOptions {
  /// Scans make no entry recent, and entries that they bring in are evicted first, the newest before the others
  /// (insertion at the cold end: Qureshi et al., "Adaptive insertion policies", 2007). False: every use counts.
  bool scan_resistant = true;
};

class LruPolicy final : public RankedPolicy {
 public:
  explicit LruPolicy(LruOptions options = {}) : options_(options) {}
  std::string_view name() const override { return "lru"; }
  double heat(uint32_t key, double now) const override;

 private:
  void apply(State& state, const Use& use, bool entering) const override;
  const LruOptions options_;
};

}  // namespace moestro::policy
