#include "common/tier/replay_host.h"

namespace moestro::tier {
namespace {

constexpr uint64_t HostCounters::* kHostCounts[] = {
    &HostCounters::hits,       &HostCounters::misses,          &HostCounters::late,
    &HostCounters::brought,    &HostCounters::prefetched,      &HostCounters::prefetched_used,
    &HostCounters::dropped,    &HostCounters::prefetched_wasted, &HostCounters::wasted_bytes,
    &HostCounters::evictions,  &HostCounters::reads,           &HostCounters::read_bytes};

}  // namespace

HostCounters& HostCounters::operator+=(const HostCounters& other) {
  for (const auto count : kHostCounts) this->*count += other.*count;
  drive_busy += other.drive_busy;
  return *this;
}

HostCounters operator-(const HostCounters& now, const HostCounters& before) {
  HostCounters since = now;
  for (const auto count : kHostCounts) since.*count -= before.*count;
  since.drive_busy -= before.drive_busy;
  return since;
}

}  // namespace moestro::tier
