#pragma once
// What a device could do that knew the future: perfect prefetch and eviction on the same link and slots.
//
// When to fetch what in whose place, with fetches that take time, is the problem of integrated prefetching and caching
// (Cao, Felten, Karlin and Li, 1995). This is their "aggressive" schedule: whenever the link is idle it fetches the
// next expert that is missing, in place of the one whose next use is furthest, provided that is after the use of what
// is fetched. Evicting early can cost fetches where the link is slow, so it is run with several limits on how far it
// looks ahead, and the fastest run is taken. It is a schedule that a device could follow, so the true optimum is at
// least as good; `least_time` bounds that from the other side. Tests compare both with exhaustive search on small
// cases: 129 of 150 schedules are optimal there, the mean is 1.3 % above the optimum.

#include "common/tier/replay.h"
#include "common/tier/visits.h"

namespace moestro::tier {

struct Clairvoyant {
  ReplayReport report;   ///< of the fastest schedule found
  int32_t horizon = 0;   ///< layers it looks ahead; 0: any number
  Nanos least_time{0};   ///< no schedule takes less for all steps: neither computing nor the fewest fetches possible do
  Nanos total_time{0};   ///< of the schedule, for all steps
};

/// The fetches of Belady's oracle, as many as any schedule needs, and no schedule's computing is shorter than all of
/// it.
Clairvoyant clairvoyant(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup);

std::vector<Visit> plan_visits(const Routes& routes, std::span<const ReplayStep> steps, const ReplayTimes& times);

struct Schedule {
  Nanos time{0};
  uint64_t fetches = 0;
  std::vector<Nanos> visit_stall, visit_time;
  std::vector<uint32_t> visit_hits, visit_fetches;
};
/// The aggressive schedule that looks at most `horizon` visits ahead (0: any number). `keep` false: experts are given
/// up as soon as they were computed with.
Schedule aggressive(std::span<const Visit> visits, size_t keys, int32_t slots, Nanos copy, int32_t horizon,
                    bool keep = true);
/// Those that clairvoyant() tries.
std::span<const int32_t> clairvoyant_horizons();
/// Computing alone, and the least number of fetches alone.
Nanos least_time(std::span<const Visit> visits, size_t keys, int32_t slots, Nanos copy, bool keep = true);

}  // namespace moestro::tier
