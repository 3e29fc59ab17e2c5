#pragma once
// How much a step asks of its predictor. While nothing had to be copied for some steps, all that is used lies on the
// device, and so does all that forecasts name: then none is made, but now and then, so that what they are worth stays
// known. Predictors go on counting what is routed, as they must know it once the device is too small again; where every
// expert has a slot it never is, and they rest.

#include <cstdint>

namespace moestro::tier {

enum class Need : uint8_t {
  kForecasts,  ///< of every layer
  kCounts,     ///< what is routed is told, nothing is asked
  kNothing,
};

class ForecastNeed {
 public:
  explicit ForecastNeed(bool all_fit) : calm_steps_(all_fit ? kCalmStepsAllFit : kCalmSteps), all_fit_(all_fit) {}

  /// `moved_bytes`: all that the link has carried so far.
  Need begin_step(uint64_t moved_bytes) {
    calm_ = moved_bytes == moved_bytes_ ? calm_ + 1 : 0;
    moved_bytes_ = moved_bytes;
    if (calm_ < calm_steps_) need_ = Need::kForecasts;
    else if (all_fit_) need_ = Need::kNothing;
    else need_ = calm_ % kLook == 0 ? Need::kForecasts : Need::kCounts;
    return need_;
  }
  /// A layer lacks something: forecasts are made from here on, unless the predictor has not heard of this step.
  void missed() {
    calm_ = 0;
    if (need_ == Need::kCounts) need_ = Need::kForecasts;
  }
  Need need() const { return need_; }

 private:
  static constexpr uint32_t kCalmSteps = 32, kCalmStepsAllFit = 4, kLook = 16;
  const uint32_t calm_steps_;
  const bool all_fit_;
  uint64_t moved_bytes_ = UINT64_MAX;
  uint32_t calm_ = 0;
  Need need_ = Need::kForecasts;
};

}  // namespace moestro::tier
