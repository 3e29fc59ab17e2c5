#pragma once
// What a device could do if it knew the future: perfect prefetching and eviction with the same link and slots.
//
// Integrated prefetching and caching asks which entry to fetch when, and which to evict for it, if fetches take time
// (Cao, Felten, Karlin and Li, 1995). This is their "aggressive" schedule: whenever the link is idle, it fetches the
// next missing expert in place of the one whose next use is furthest, provided that use is after the use of the fetched
// one. Early eviction can cost fetches if the link is slow, so the schedule is run with several limits on how far it
// looks ahead, and the fastest run is taken. It is a schedule that a device could follow, so the true optimum is at
// least as good. `least_time` is a lower bound. Tests compare both with exhaustive search on small cases: 129 of 150
// schedules are optimal there, the mean is 1.3 % above the optimum.

#include "common/tier/replay.h"
#include "common/tier/visits.h"

namespace moestro::tier {

struct Clairvoyant {
  ReplayReport report;   ///< of the fastest schedule found
  int32_t horizon = 0;   ///< layers it looks ahead; 0: any number
  Nanos least_time{0};   ///< no schedule takes less for all steps: computing alone, or the fewest possible fetches
                         ///< alone, take this long
  Nanos total_time{0};   ///< of the schedule, for all steps
};

/// Runs the schedules. The lower bound uses the fetches of Belady's oracle, which any schedule needs, and the whole
/// computing time.
Clairvoyant clairvoyant(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup);

std::vector<Visit> plan_visits(const Routes& routes, std::span<const ReplayStep> steps, const ReplayTimes& times);

/// What a plan of fetches comes to: in all, and for each visit.
struct FetchPlan {
  Nanos time{0};
  uint64_t fetches = 0;
  std::vector<Nanos> visit_stall, visit_time;
  std::vector<uint32_t> visit_hits, visit_fetches;
};
/// The aggressive plan that looks at most `horizon` visits ahead (0: any number). `keep` false: experts are dropped
/// as soon as they have been computed.
FetchPlan aggressive(std::span<const Visit> visits, size_t keys, int32_t slots, Nanos copy, int32_t horizon,
                     bool keep = true);
/// The horizons that clairvoyant() tries.
std::span<const int32_t> clairvoyant_horizons();
/// The larger of computing alone and the least number of fetches alone.
Nanos least_time(std::span<const Visit> visits, size_t keys, int32_t slots, Nanos copy, bool keep = true);

}  // namespace moestro::tier
