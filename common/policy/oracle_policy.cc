#include "common/policy/oracle_policy.h"

#include <algorithm>
#include <limits>

namespace moestro::policy {

OraclePolicy::OraclePolicy(std::span<const uint32_t> future) : next_(future.size()) {
  std::vector<double> again(future.empty() ? 0 : *std::ranges::max_element(future) + 1,
                            std::numeric_limits<double>::infinity());
  for (size_t time = future.size(); time-- > 0;) {
    next_[time] = again[future[time]];
    again[future[time]] = static_cast<double>(time);
  }
}

void OraclePolicy::apply(State& state, const Use& use, bool) const {
  const auto time = static_cast<size_t>(use.time);
  state.rank = time < next_.size() ? -next_[time] : -std::numeric_limits<double>::infinity();
}

double OraclePolicy::heat(uint32_t key, double now) const {
  return has(key) ? 1 / (1 + std::max(0.0, -state(key).rank - now)) : 0;
}

}  // namespace moestro::policy
