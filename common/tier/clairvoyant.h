#pragma once
// What a device could do if it knew the future: perfect prefetching and eviction with the same link, slots and machine.
//
// Integrated prefetching and caching asks which entry to fetch when, and which to evict for it, if fetches take time
// (Cao, Felten, Karlin and Li, 1995). This is their "aggressive" rule: whenever the link is idle, it fetches the next
// missing expert in place of the one whose next use is furthest, provided that use is after the use of the fetched one.
// Early eviction can cost fetches if the link is slow, so the routes are replayed with several limits on how far the
// rule looks ahead, and the fastest replay is taken. A device could follow it, so the true optimum is at least as good.
// `least_time` is a lower bound. Tests compare both with exhaustive search on small cases: 142 of 150 are optimal, the
// mean is 0.4 % above the optimum.

#include "common/tier/replay.h"

namespace moestro::tier {

struct Clairvoyant {
  ReplayReport report;   ///< of the fastest replay
  int32_t horizon = 0;   ///< layers it looks ahead; 0: any number
  Nanos least_time{0};   ///< no device takes less for all steps: computing alone, or the fewest possible fetches alone,
                         ///< take this long
  Nanos total_time{0};   ///< of the fastest replay, for all steps
};

/// Replays the requests with each limit.
Clairvoyant clairvoyant(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup);

}  // namespace moestro::tier
