#pragma once
// How long a layer takes, from router to router.

#include <cstdint>

#include "common/clock.h"

namespace moestro::tier {

class LayerPace {
 public:
  /// `layers`: the number of MoE layers since the previous router; 0: none of this step. `scan` steps are measured
  /// separately.
  void routed(Nanos now, int32_t layers, bool scan) {
    const Nanos took = now - last_;
    if (any_ && layers > 0 && took >= Nanos{0} && took < kPause) {
      Nanos& mean = mean_[scan ? 1 : 0];
      const Nanos each = took / layers;
      mean = mean == Nanos{0} ? each
                              : mean + Nanos(static_cast<int64_t>(kNew * static_cast<double>((each - mean).count())));
    }
    last_ = now, any_ = true;
  }
  /// 0: no layer has been timed yet.
  Nanos per_layer(bool scan) const { return mean_[scan ? 1 : 0]; }
  /// When the last router ran.
  Nanos last() const { return last_; }

 private:
  static constexpr double kNew = 1.0 / 16;                  ///< weight of the newest layer in the mean
  static constexpr Nanos kPause = std::chrono::seconds(1);  ///< longer between two routers: nobody asked for anything
  Nanos last_{0};
  bool any_ = false;
  Nanos mean_[2]{};  ///< by scan
};

}  // namespace moestro::tier
