#pragma once
// How long a layer takes, from router to router; and from the begin of a step to its first router, where only an
// attention lies.

#include <cstdint>
#include <optional>
#include <utility>

#include "common/clock.h"

namespace moestro::tier {

class LayerPace {
 public:
  void began(Nanos now) { began_ = now; }
  /// `layers`: the number of MoE layers since the previous router; 0: none of this step. `scan` steps are measured
  /// separately.
  void routed(Nanos now, int32_t layers, bool scan) {
    const Nanos took = now - last_;
    if (any_ && layers > 0 && took < kPause) add(mean_[scan ? 1 : 0], took / layers);
    if (const auto began = std::exchange(began_, std::nullopt); began && layers == 0)
      add(first_[scan ? 1 : 0], now - *began);
    last_ = now, any_ = true;
  }
  /// 0: no layer has been timed yet.
  Nanos per_layer(bool scan) const { return mean_[scan ? 1 : 0]; }
  /// From the begin of a step to its first router.
  Nanos until_first(bool scan) const {
    const Nanos first = first_[scan ? 1 : 0];
    return first > Nanos{0} ? first : per_layer(scan);
  }
  /// When the last router ran.
  Nanos last() const { return last_; }

 private:
  static void add(Nanos& mean, Nanos took) {
    if (took < Nanos{0}) return;
    mean = mean == Nanos{0} ? took
                            : mean + Nanos(static_cast<int64_t>(kNew * static_cast<double>((took - mean).count())));
  }

  static constexpr double kNew = 1.0 / 16;                  ///< weight of the newest layer in the mean
  static constexpr Nanos kPause = std::chrono::seconds(1);  ///< longer between two routers: nobody asked for anything
  Nanos last_{0};
  bool any_ = false;
  std::optional<Nanos> began_;  ///< the step whose first router has not run yet
  Nanos mean_[2]{}, first_[2]{};  ///< by scan
};

}  // namespace moestro::tier
