#pragma once
// The measured rate of a link and duration of a layer, for the budget of prefetches.

#include <cstdint>

#include "common/tier/layer_pace.h"

namespace moestro::tier {

class LinkPace {
 public:
  LinkPace(double bytes_per_s, Nanos latency) : bytes_per_s_(bytes_per_s), latency_(latency) {}

  /// As LayerPace.
  void routed(Nanos now, int32_t layers, bool scan) { layers_.routed(now, layers, scan); }
  void carried(uint64_t bytes, Nanos took);

  /// An expert, by the device.
  void computed(Nanos took);

  /// That the device computes an expert; 0: none has been timed.
  Nanos expert() const { return computed_ > 0 ? Nanos(static_cast<int64_t>(computed_s_ / computed_ * 1e9)) : Nanos{0}; }
  double bytes_per_s() const { return bytes_per_s_; }
  /// Bytes that the link can carry before a layer `distance` ahead of the last router needs them. Unlimited if nothing
  /// is known.
  double room(Nanos now, int32_t distance, bool scan) const;
  Nanos time_of(uint64_t bytes) const;

 private:
  double bytes_per_s_;
  Nanos latency_;
  LayerPace layers_;
  double sum_bytes_ = 0, sum_seconds_ = 0;
  double computed_ = 0, computed_s_ = 0;  ///< experts, and their time; old ones count less
};

}  // namespace moestro::tier
