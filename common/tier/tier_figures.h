#pragma once
// What a tier has done since the last report. A worker sends it to the orchestrator with every result.

#include <cstdint>
#include <vector>

#include "common/tier/device_tier.h"
#include "common/tier/use_window.h"

namespace moestro::tier {

struct TierFigures {
  std::vector<LayerCounters> layers;
  uint64_t moved_bytes = 0, wasted_bytes = 0;  ///< as in TierCounters
  uint64_t staged_bytes = 0;  ///< of those moved: copied by a thread first, because the device could not read them
  uint64_t link_busy_us = 0;
  uint32_t resident = 0;  ///< complete experts now
  WindowHits recent;      ///< of a window that was replayed since then
};

/// Figures of one tier. Nothing is lost to rounding: the results of all calls add up to the tier's own counters.
class FiguresSince {
 public:
  /// What `tier` has done since the previous call, or since it was made. `recent` is not changed. Reuses the memory of
  /// `out`.
  void take(const DeviceTier& tier, TierFigures& out);

 private:
  std::vector<LayerCounters> layers_;
  TierCounters told_;
};

}  // namespace moestro::tier
