#include "common/policy/lru_policy.h"

#include <algorithm>

namespace moestro::policy {

void LruPolicy::apply(State& state, const Use& use, bool entering) const {
  if (!use.scan || !options_.scan_resistant) state.rank = entering ? use.time : std::max(state.rank, use.time);
  else if (entering) state.rank = -use.time;
}

double LruPolicy::heat(uint32_t key, double now) const {
  if (!has(key) || state(key).shown < 0) return 0;
  const double age = now - state(key).shown;
  return age >= 0 ? 1 / (1 + age) : 1 - age;  // also what is a little ahead of the clock has its order
}

}  // namespace moestro::policy
