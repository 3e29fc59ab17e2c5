#pragma once
// Klotski's four inequalities: what a layer's computing has to be long enough for, so that nothing that is brought is
// waited for (Fang et al., ASPLOS 2025, section 5). What else the link carries, the KV cache, counts as brought with
// the attention's.

#include <optional>
#include <string>
#include <vector>

#include "common/planner/arrangement.h"

namespace moestro::planner {

struct Inequality {
  std::string what;          ///< "the other experts, and the next layer's attention"
  double computing_s = 0;    ///< of the layer until then
  double bringing_s = 0;     ///< that has to be over by then
  double short_s() const { return bringing_s > computing_s ? bringing_s - computing_s : 0; }
};

/// Of a decoding step of the expert pipeline, of its first layer with experts. Four of them.
std::vector<Inequality> bubbles(const PlanInput& input, const Arrangement& arrangement, const Placement& placement);

/// The least number of micro-batches of so many rows with which nothing is short; nullopt: none up to `most`. Memories
/// do not count.
std::optional<int64_t> bubble_free_micro_batches(const PlanInput& input, Arrangement arrangement,
                                                 const Placement& placement, int64_t most);

}  // namespace moestro::planner
