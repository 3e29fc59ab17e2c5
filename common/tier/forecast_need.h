#pragma once
// How much a step asks of its predictor. If nothing had to be brought for some steps, all experts in use are there: on
// the device, or in host memory. Then forecasts are made only occasionally, so that their accuracy stays known.
// Predictors still count what is routed, because they need it when experts are missing again. If every expert has a
// slot, that hardly happens, and predictors do nothing.

#include <cstdint>

namespace moestro::tier {

enum class Need : uint8_t {
  kForecasts,  ///< of every layer
  kCounts,     ///< routes are reported, forecasts are not asked for
  kNothing,
};

class ForecastNeed {
 public:
  explicit ForecastNeed(bool all_fit) : calm_steps_(all_fit ? kCalmStepsAllFit : kCalmSteps), all_fit_(all_fit) {}

  /// `brought`: a count that grows with everything that is brought, such as the bytes that the link has carried.
  Need begin_step(uint64_t brought) {
    calm_ = brought == brought_ ? calm_ + 1 : 0;
    brought_ = brought;
    if (calm_ < calm_steps_) need_ = Need::kForecasts;
    else if (all_fit_) need_ = Need::kNothing;
    else need_ = calm_ % kLook == 0 ? Need::kForecasts : Need::kCounts;
    return need_;
  }
  /// A layer misses an expert: forecasts are made from now on, unless this step was not reported to the predictor.
  void missed() {
    calm_ = 0;
    if (need_ == Need::kCounts) need_ = Need::kForecasts;
  }
  Need need() const { return need_; }

 private:
  static constexpr uint32_t kCalmSteps = 32, kCalmStepsAllFit = 4, kLook = 16;
  const uint32_t calm_steps_;
  const bool all_fit_;
  uint64_t brought_ = UINT64_MAX;
  uint32_t calm_ = 0;
  Need need_ = Need::kForecasts;
};

}  // namespace moestro::tier
