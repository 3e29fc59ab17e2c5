#pragma once
// Host memory as a memory that is filled ahead. Tells the source of weights (the store) what the next layers will
// probably use, and when (common/tier/outlook_maker). The source reads ahead by that, and evicts by it.
//
// While everything in use is in host memory, nothing is forecast, and the source is told nothing. Only if the device
// above is being filled, what it still lacks is foreseen as a scan: it passes by.

#include <memory>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/dtype.h"
#include "common/tier/outlook_maker.h"
#include "services/worker/device/device_experts.h"
#include "services/worker/device/expert_blobs.h"
#include "services/worker/device/expert_tier.h"
#include "store/blob_source.h"

namespace moestro::device {

class HostOutlook final : public ExpertTier {
 public:
  /// kInvalidArgument: the pack has no experts of this precision. `host`: the source whose memory it is. `above`: the
  /// device that takes experts from it, whose own are not foreseen; null: the CPU computes them where they lie. All
  /// outlive it.
  static Result<std::unique_ptr<HostOutlook>> create(store::BlobSource& host, DType precision,
                                                     const DeviceExperts* above, const Clock& clock);

  int32_t layers() const override { return blobs_.layers; }
  int32_t experts() const override { return blobs_.experts; }
  bool fits_all() const override { return fits_all_; }
  /// Returns the number of experts that were missing, or had been read since their last use.
  uint64_t begin_step(PlanId plan, bool scan) override;
  /// By the source's count of misses, so it concerns the layers since the previous call.
  bool routed(MoeLayerId layer, std::span<const tier::DeviceTier::Wanted> wanted) override;
  bool forecast(int32_t layer, const prediction::Forecast& forecast) override;
  void unforeseen() override;
  void abandon() override { withdraw(); }
  /// What was foreseen and is not there was foreseen too late for the drive; the store does not say why.
  Late why_late(tier::Key key) const override {
    return {maker_.was_foreseen(key) ? LateCause::kForeseenTooLate : LateCause::kNotForeseen, true};
  }

 private:
  HostOutlook(store::BlobSource& host, ExpertBlobs blobs, const DeviceExperts* above, const Clock& clock);
  void tell();
  void tell_filling();
  void withdraw();

  store::BlobSource& host_;
  const ExpertBlobs blobs_;
  const DeviceExperts* const above_;
  const Clock& clock_;
  const bool fits_all_;
  tier::OutlookMaker maker_;
  bool foreseen_ = false;   ///< forecasts are being made
  bool standing_ = false;   ///< the source has an outlook that is not empty
  uint64_t misses_ = 0;     ///< of the source, when it was last looked at
  std::optional<Nanos> began_;  ///< the step
  Nanos last_step_{0};          ///< from the beginning of the step before to that of this one
  std::vector<uint8_t> held_;  ///< [key]: on the device above; empty: there is none
  std::vector<store::Foreseen> outlook_;
};

}  // namespace moestro::device
