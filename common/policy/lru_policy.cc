#include "common/policy/lru_policy.h"

#include <algorithm>

namespace moestro::policy {

void LruPolicy::apply(State& state, const Use& use, bool entering) const {
  if (!use.scan || !options_.scan_resistant) state.rank = entering ? use.time : std::max(state.rank, use.time);
  else if (entering) state.rank = -use.time;
}

double LruPolicy::heat(uint32_t key, double now) const {
  if (!has(key) || state(key).shown < 0) return 0;
  return 1 / (1 + std::max(0.0, now - state(key).shown));
}

}  // namespace moestro::policy
