#pragma once
// Host memory as a memory that is filled ahead. Turns forecasts into outlooks: what the next layers will probably use,
// and when. The source of weights (the store) reads ahead by them, and evicts by them.
//
// While everything in use is in host memory, nothing is forecast, and the source is told nothing.

#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/dtype.h"
#include "common/tier/calibrated_forecast.h"
#include "common/tier/layer_pace.h"
#include "common/tier/prefetch_rules.h"
#include "services/worker/device/device_experts.h"
#include "services/worker/device/expert_blobs.h"
#include "services/worker/device/expert_tier.h"
#include "store/blob_source.h"

namespace moestro::device {

class HostOutlook final : public ExpertTier {
 public:
  static constexpr size_t kExpertsMax = 256;  ///< of an outlook

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
    return {late_[key] != 0 ? LateCause::kForeseenTooLate : LateCause::kNotForeseen, true};
  }

 private:
  struct Candidate {
    tier::Key key = 0;
    int32_t ahead = 0;  ///< layers until its router
    float probability = 0, priority = 0;
  };

  HostOutlook(store::BlobSource& host, ExpertBlobs blobs, const DeviceExperts* above, const Clock& clock);
  bool held_above(tier::Key key) const { return above_ != nullptr && held_[key] != 0; }
  void choose(int32_t layer, const prediction::Forecast& forecast);
  void choose_scanned(int32_t layer);
  void tell(Nanos since_router);
  void withdraw();

  store::BlobSource& host_;
  const ExpertBlobs blobs_;
  const DeviceExperts* const above_;
  const Clock& clock_;
  const bool fits_all_;
  tier::CalibratedForecast forecast_;
  tier::LayerPace pace_;
  bool scan_ = false;
  bool foreseen_ = false;   ///< forecasts are being made
  bool standing_ = false;   ///< the source has an outlook that is not empty
  int32_t at_ = -1;         ///< the layer of this step that was timed last
  uint64_t misses_ = 0;     ///< of the source, when it was last looked at
  std::vector<uint8_t> used_;               ///< [experts] of a layer
  std::vector<uint8_t> held_;               ///< [key]: on the device above
  std::vector<uint8_t> told_, late_;        ///< [key]: foreseen since its layer's last pass; before that pass
  std::vector<Candidate> candidates_;
  std::vector<store::Foreseen> outlook_;
};

}  // namespace moestro::device
