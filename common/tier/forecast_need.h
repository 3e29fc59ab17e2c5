#pragma once
// How much a step asks of its predictor. If nothing had to be brought for some steps, all experts in use are there: on
// the device, or in host memory. Then forecasts are made only occasionally, so that their accuracy stays known.
// Predictors still count what is routed, because they need it when experts are missing again. If every expert has a
// slot, that hardly happens, and predictors do nothing.
//
// Forecasts are made only occasionally, too, where experts are missing but for some steps none was likely enough to be
// acted on: this routing cannot be foreseen.

#include <cstdint>
#include <utility>

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
    ++steps_;
    if (need_ == Need::kForecasts) vain_ = std::exchange(useful_, false) ? 0 : vain_ + 1;
    if (calm_ >= calm_steps_) need_ = all_fit_ ? Need::kNothing : look_if(calm_);
    else need_ = vain_ > kVainSteps ? look_if(steps_) : Need::kForecasts;
    return need_;
  }
  /// The forecast that was made now names something that is likely enough to be acted on.
  void useful() { useful_ = true; }
  /// A layer misses an expert: forecasts are made from now on, unless this step was not reported to the predictor.
  void missed() {
    calm_ = 0;
    if (need_ == Need::kCounts && vain_ <= kVainSteps) need_ = Need::kForecasts;
  }
  Need need() const { return need_; }

 private:
  static constexpr uint32_t kCalmSteps = 32, kCalmStepsAllFit = 4, kVainSteps = 64, kLook = 16;
  static Need look_if(uint32_t steps) { return steps % kLook == 0 ? Need::kForecasts : Need::kCounts; }
  const uint32_t calm_steps_;
  const bool all_fit_;
  uint64_t brought_ = UINT64_MAX;
  uint32_t calm_ = 0;
  uint32_t steps_ = 0, vain_ = 0;  ///< vain: steps with forecasts since one was useful
  bool useful_ = false;
  Need need_ = Need::kForecasts;
};

}  // namespace moestro::tier
