#pragma once
// What a tier has done since somebody last asked: what a worker tells the orchestrator with every result.

#include <cstdint>
#include <vector>

#include "common/tier/device_tier.h"
#include "common/tier/use_window.h"

namespace moestro::tier {

struct TierFigures {
  std::vector<LayerCounters> layers;
  uint64_t moved_bytes = 0, wasted_bytes = 0;  ///< as in TierCounters
  uint64_t link_busy_us = 0;
  uint32_t resident = 0;  ///< experts that are whole now
  WindowHits recent;      ///< of a window that has been replayed since
};

/// Of one tier. Nothing that is taken is lost to rounding: what all calls said adds up to the tier's own counters.
class FiguresSince {
 public:
  /// What `tier` has done since the call before, at first since it was made; `recent` is left as it is. Keeps the
  /// memory of `out`.
  void take(const DeviceTier& tier, TierFigures& out);

 private:
  std::vector<LayerCounters> layers_;
  TierCounters told_;
};

}  // namespace moestro::tier
