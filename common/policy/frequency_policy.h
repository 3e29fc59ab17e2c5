#pragma once
// Evicts the least frequently used entry; older uses count less. The two policies differ in how uses age:
//
//   lfu    counts, all of them halved at the end of every period: nearly pure frequency
//   lfru   frequency over recency: a use loses half its weight in every half-life, smoothly (the spectrum between LFU
//          and LRU of Lee et al., "LRFU", 2001)
//
// Both keep log2 of the sum over uses of weight * 2^(time / half-life). Ageing multiplies all sums by the same factor,
// so it never changes the order, and a rank changes only when its key is used. A key that returns to the cache has the
// rank that it had when it left.

#include "common/policy/ranked_policy.h"

namespace moestro::policy {

struct LfuOptions {
  double period_uses = 0;  ///< 0: never halved
};
struct LfruOptions {
  double half_life_uses = 1000;  ///< > 0
};

class FrequencyPolicy final : public RankedPolicy {
 public:
  explicit FrequencyPolicy(LfuOptions options) : half_life_(options.period_uses), steps_(true) {}
  explicit FrequencyPolicy(LfruOptions options) : half_life_(options.half_life_uses), steps_(false) {}
  std::string_view name() const override { return steps_ ? "lfu" : "lfru"; }
  double heat(uint32_t key, double now) const override;

 private:
  void apply(State& state, const Use& use, bool entering) const override;
  double age(double time) const;

  const double half_life_;
  const bool steps_;
};

}  // namespace moestro::policy
