#pragma once
// Belady's oracle: evicts the entry whose next use is furthest in the future. It must be given the future, so it is for
// replays only. For entries of one size, no policy that always loads what is missing hits more often (Belady, 1966).

#include <vector>

#include "common/policy/ranked_policy.h"

namespace moestro::policy {

class OraclePolicy final : public RankedPolicy {
 public:
  /// `future[i]` is the key used at time i.
  explicit OraclePolicy(std::span<const uint32_t> future);
  std::string_view name() const override { return "belady"; }
  double heat(uint32_t key, double now) const override;

 private:
  void apply(State& state, const Use& use, bool entering) const override;
  std::vector<double> next_;  ///< by time: when the key of that time is used again
};

}  // namespace moestro::policy
