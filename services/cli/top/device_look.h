#pragma once
// The devices with a memory of their own, as the orchestrator's status tells of them (tiers.device) and `moestro top`
// shows them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "services/cli/top/frame.h"

namespace moestro::cli {

struct DeviceLook {
  uint64_t workers = 0;  ///< that have such a device; 0: nothing to show
  uint64_t slots = 0, experts = 0;
  uint64_t hits = 0, misses = 0, prefetched = 0, prefetched_used = 0, prefetched_wasted = 0;
  uint64_t host_experts = 0, host_rows = 0, rewinds = 0;
  uint64_t dense_bytes = 0;  ///< of dense weights that take turns there, over the link
  double dense_stall_s = 0;  ///< waiting for those
  double link_busy_s = 0, step_s = 0, stall_s = 0;  ///< stall_s: waiting for experts
  double realised = -1, lru = -1, belady = -1;  ///< of the last uses, the part that were hits; negative: not known yet
};

/// Of any JSON: what is not as it should be is as if it were not there.
DeviceLook read_device(const nlohmann::json& tier);

/// Three groups of figures, or none; another where CPUs have computed experts or layers were queued again, and where
/// dense weights take turns. Rates are
/// what lies between the looks, `seconds` apart. 0: there is no earlier one.
std::vector<Line> device_lines(const DeviceLook& before, const DeviceLook& now, double seconds);

}  // namespace moestro::cli
