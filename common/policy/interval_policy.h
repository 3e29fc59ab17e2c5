#pragma once
// Evicts what is used least often, measured by the time between uses.
//
// A sum of past uses, as of FrequencyPolicy, grows with a use and shrinks until the next one. If all keys are used in
// turn, as by a step with so many sequences that each layer needs nearly all of its experts, then the lowest sum is
// that of the key whose turn is next: it is evicted just before it is needed, and a cache that has room for half of the
// keys never has the right ones. The time between the uses of a key does not depend on whose turn it is. Keys that are
// used equally often have equal ranks, and of these always the same stay, so a cyclic scan hits what the cache has room
// for, which is the most that is possible on demand.
//
// Re-reference intervals as ranks: Jiang and Zhang, "LIRS" (2002); Jaleel et al., "RRIP" (2010).

#include "common/policy/ranked_policy.h"

namespace moestro::policy {

class IntervalPolicy final : public RankedPolicy {
 public:
  /// `keys`: how many there are, for the interval that is assumed after a first use.
  explicit IntervalPolicy(size_t keys);
  std::string_view name() const override { return "interval"; }
  std::optional<uint32_t> victim(const Wanted& wanted, const Judge& judge) override;
  /// Uses in as long a time as is assumed between the first use and the second: the weight of a first use that makes a
  /// key as hot.
  double heat(uint32_t key, double now) const override;

 private:
  void apply(State& state, const Use& use, bool entering) const override;
  double interval_at(const State& state, double now) const;
  void age(double now);

  const double keys_;
  const double first_;  ///< log2 of the interval that is assumed after a first use of weight 1
  double aged_at_ = 0;
};

}  // namespace moestro::policy
