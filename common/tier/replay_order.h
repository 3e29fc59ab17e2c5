#pragma once
// In which order the requests of a replay join its batch: as they come, or by the experts that they are likely to share
// with those that run (docs/decisions/0035-overlap.md).

#include <cstddef>
#include <span>
#include <vector>

#include "common/status.h"
#include "common/tier/routes.h"

namespace moestro::tier {

struct OverlapOrder {
  int32_t batch = 1;       ///< as of ReplaySetup
  size_t waiting = 64;     ///< requests that wait at once; whenever one joins, another comes
  size_t passes = 16;      ///< later requests that may join before one that waits
};

/// The same in an order that is always the same and has nothing to do with theirs.
std::vector<size_t> mixed(std::vector<size_t> requests);

/// `requests` (indices, as they come) in the order in which they join. What experts a request uses is foreseen from its
/// prompt, by the `learned` requests and those that have ended. kInvalidArgument: the trace has no tokens of prompts.
Result<std::vector<size_t>> join_by_overlap(const Routes& routes, std::span<const size_t> learned,
                                            std::span<const size_t> requests, const OverlapOrder& order);

}  // namespace moestro::tier
