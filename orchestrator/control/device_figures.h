#pragma once
// Figures of devices with their own memory: for one step, for a worker, for all.

#include <cstdint>
#include <vector>

namespace moestro::orchestrator {

/// For one MoE layer, or for all together.
struct DeviceUse {
  uint64_t hits = 0;               ///< experts that a layer needed and that were present
  uint64_t misses = 0;             ///< experts that were not
  uint64_t late = 0;               ///< of the misses, those that were being copied
  uint64_t evictions = 0;
  uint64_t prefetched = 0;         ///< experts that a prefetch completed
  uint64_t prefetched_used = 0;    ///< of them, used before they were evicted
  uint64_t prefetched_wasted = 0;  ///< of them, evicted unused
  DeviceUse& operator+=(const DeviceUse& other) {
    hits += other.hits, misses += other.misses, late += other.late, evictions += other.evictions;
    prefetched += other.prefetched, prefetched_used += other.prefetched_used,
        prefetched_wasted += other.prefetched_wasted;
    return *this;
  }
};

/// The last uses, and how many of them would have been hits on demand with the same number of slots.
struct RecentUses {
  uint64_t uses = 0;  ///< 0: it was not computed yet
  uint64_t hits = 0;  ///< actual hits, with prefetches
  uint64_t lru_hits = 0, belady_hits = 0;
  RecentUses& operator+=(const RecentUses& other) {
    uses += other.uses, hits += other.hits, lru_hits += other.lru_hits, belady_hits += other.belady_hits;
    return *this;
  }
};

/// Other figures of devices.
struct DeviceWork {
  uint64_t host_experts = 0,
           host_rows =
               0;  ///< experts that CPUs computed instead of waiting for the link; (token, expert) choices of theirs
  uint64_t rewinds = 0;  ///< layers that were queued before their routes were known, and had to be queued again
  uint64_t kv_in_bytes = 0, kv_out_bytes = 0;  ///< of KV caches whose home is host memory: to devices and back
  DeviceWork& operator+=(const DeviceWork& other) {
    host_experts += other.host_experts, host_rows += other.host_rows, rewinds += other.rewinds;
    kv_in_bytes += other.kv_in_bytes, kv_out_bytes += other.kv_out_bytes;
    return *this;
  }
};

/// The figures of a worker's device in a result, since the previous result.
struct DeviceStep {
  std::vector<DeviceUse> layers;
  uint64_t moved_bytes = 0,
           wasted_bytes = 0;  ///< bytes that the link carried; of them, for prefetches that were evicted unused
  uint64_t staged_bytes = 0;  ///< of those carried: copied by a thread first
  uint64_t link_busy_us = 0;
  uint32_t resident = 0;  ///< slots with a complete expert
  RecentUses recent;
  DeviceWork work;
};

/// Sums of device figures.
struct DeviceTotals {
  DeviceUse use;
  DeviceWork work;
  uint64_t moved_bytes = 0, wasted_bytes = 0, staged_bytes = 0, link_busy_us = 0;
  /// Of steps of workers with such a device: all, and where they waited for experts.
  uint64_t step_us = 0, stall_us = 0;
};

}  // namespace moestro::orchestrator
