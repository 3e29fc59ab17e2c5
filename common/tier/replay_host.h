#pragma once
// Host memory that is smaller than the experts and filled from a drive, as a replay sees it: what the store's client is
// to a worker, on the replay's clock. store/replay has the implementation, because it runs the store's own machine.

#include <cstdint>
#include <optional>
#include <span>

#include "common/clock.h"
#include "common/tier/outlook_maker.h"

namespace moestro::tier {

/// What host memory (in metrics: the tier `dram`) and the drive (`nvme`) did.
struct HostCounters {
  uint64_t hits = 0;    ///< experts that were needed from host memory, and were there
  uint64_t misses = 0;  ///< and were not there
  uint64_t late = 0;    ///< of the misses: already being read
  uint64_t brought = 0; ///< of the hits: experts that were read since their last use
  uint64_t prefetched = 0;         ///< experts that were read ahead of their use
  uint64_t prefetched_used = 0;    ///< of those: used before they were evicted
  uint64_t prefetched_wasted = 0;  ///< of those: evicted unused
  uint64_t dropped = 0;            ///< reads that were begun ahead and given up
  uint64_t wasted_bytes = 0;       ///< read for a prefetch, complete or not, and dropped unused
  uint64_t evictions = 0;
  uint64_t reads = 0;              ///< that ended, complete or not
  uint64_t read_bytes = 0;         ///< all that the drive carried
  Nanos drive_busy{0};             ///< time that it took

  uint64_t uses() const { return hits + misses; }
  HostCounters& operator+=(const HostCounters& other);
  friend HostCounters operator-(const HostCounters& now, const HostCounters& before);
  friend bool operator==(const HostCounters&, const HostCounters&) = default;
};

/// Calls are made in the order of the replay's clock.
class ReplayHost {
 public:
  virtual ~ReplayHost() = default;
  /// Whether every expert fits.
  virtual bool fits_all() const = 0;

  virtual bool holds(Key key) const = 0;
  /// kHit: the expert is there, and pinned. `weight`: how much of a use it is (policy::Use::weight). If it is not there
  /// (kLate: it is being read), a later fetch counts with the same weight.
  virtual Found try_pin(Key key, float weight) = 0;
  /// Requests what try_pin() did not give. Each arrives once, pinned. `step` and `layer` order reads.
  virtual void fetch(std::span<const Key> keys, uint64_t step, int32_t layer) = 0;
  /// The next one that has arrived.
  virtual std::optional<Key> take_arrival() = 0;
  virtual void unpin(Key key) = 0;
  /// Replaces what was foreseen before; without experts nothing is.
  virtual void foresee(std::span<const ForeseenKey> experts, bool scan, bool leads) = 0;

  /// When the drive ends something or begins what has waited. nullopt: not before the next call.
  virtual std::optional<Nanos> next_event() = 0;
  /// Everything that happens until `now`.
  virtual void advance(Nanos now) = 0;

  /// Of all that has happened so far.
  virtual HostCounters counters() = 0;
};

}  // namespace moestro::tier
