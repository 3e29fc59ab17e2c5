#pragma once
// What devices with a memory of their own do: of one step, of a worker, of all.

#include <cstdint>
#include <vector>

namespace moestro::orchestrator {

/// Of one MoE layer, or of all together.
struct DeviceUse {
  uint64_t hits = 0;               ///< experts that a layer wanted and that were there, whole
  uint64_t misses = 0;             ///< that were not
  uint64_t late = 0;               ///< of the misses, those that were on their way
  uint64_t evictions = 0;
  uint64_t prefetched = 0;         ///< that a prefetch completed
  uint64_t prefetched_used = 0;    ///< of them, used before they were given up
  uint64_t prefetched_wasted = 0;  ///< of them, given up unused
  DeviceUse& operator+=(const DeviceUse& other) {
    hits += other.hits, misses += other.misses, late += other.late, evictions += other.evictions;
    prefetched += other.prefetched, prefetched_used += other.prefetched_used,
        prefetched_wasted += other.prefetched_wasted;
    return *this;
  }
};

/// The last uses again, on demand with as many slots: how many would have been hits.
struct RecentUses {
  uint64_t uses = 0;  ///< 0: it was not computed yet
  uint64_t hits = 0;  ///< as it was, prefetches and all
  uint64_t lru_hits = 0, belady_hits = 0;
  RecentUses& operator+=(const RecentUses& other) {
    uses += other.uses, hits += other.hits, lru_hits += other.lru_hits, belady_hits += other.belady_hits;
    return *this;
  }
};

/// What devices do beside that.
struct DeviceWork {
  uint64_t host_experts = 0,
           host_rows =
               0;  ///< experts that CPUs computed instead of waiting for the link; (token, expert) choices of theirs
  uint64_t rewinds = 0;  ///< layers that were queued before their routes were known, and had to be queued again
  DeviceWork& operator+=(const DeviceWork& other) {
    host_experts += other.host_experts, host_rows += other.host_rows, rewinds += other.rewinds;
    return *this;
  }
};

/// What a result says of its worker's device, since the result before.
struct DeviceStep {
  std::vector<DeviceUse> layers;
  uint64_t moved_bytes = 0,
           wasted_bytes = 0;  ///< that the link carried; of them, for prefetches that were given up unused
  uint64_t link_busy_us = 0;
  uint32_t resident = 0;  ///< slots that hold a whole expert
  RecentUses recent;
  DeviceWork work;
};

/// Sums of that.
struct DeviceTotals {
  DeviceUse use;
  DeviceWork work;
  uint64_t moved_bytes = 0, wasted_bytes = 0, link_busy_us = 0;
  uint64_t step_us = 0, stall_us = 0;  ///< of steps of workers with such a device
};

}  // namespace moestro::orchestrator
