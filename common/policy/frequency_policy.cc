#include "common/policy/frequency_policy.h"

#include <algorithm>
#include <cmath>

namespace moestro::policy {
namespace {
/// log2(2^a + 2^b)
double log2_sum(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return high + std::log2(1 + std::exp2(low - high));
}
}  // namespace

double FrequencyPolicy::age(double time) const {
  if (half_life_ <= 0) return 0;
  return steps_ ? std::floor(time / half_life_) : time / half_life_;
}

void FrequencyPolicy::apply(State& state, const Use& use, bool) const {
  const double gained = std::log2(std::max(use.weight, kWeightMin)) + age(use.time);
  state.rank = state.known ? log2_sum(state.rank, gained) : gained;
  state.tie = std::max(state.tie, use.time);
}

double FrequencyPolicy::heat(uint32_t key, double now) const {
  return has(key) ? std::exp2(state(key).shown - age(now)) : 0;
}

}  // namespace moestro::policy
