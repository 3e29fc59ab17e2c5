#pragma once
// What a worker tells the owner of host memory: which experts its next layers will probably use, and when. A worker
// (services/worker/device/host_outlook) and replay use the same object.

#include <cstdint>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/tier/calibrated_forecast.h"
#include "common/tier/device_tier.h"
#include "common/tier/layer_pace.h"

namespace moestro::tier {

struct ForeseenKey {
  Key key = 0;
  float probability = 0;  ///< that the next pass of its layer uses it; calibrated
  Nanos due{0};           ///< from now until the router of its layer has probably run
};

class OutlookMaker {
 public:
  static constexpr size_t kExpertsMax = 256;  ///< of an outlook

  OutlookMaker(int32_t layers, int32_t experts);

  void begin_step(bool scan);
  /// The router of `layer` has chosen these. Call it only while forecasts are made: it judges them and times layers.
  void routed(Nanos now, int32_t layer, std::span<const DeviceTier::Wanted> wanted);
  /// A forecast that was made at `layer` (-1: before the first). `held`: by key, whether a device above has it and so
  /// does not need it from host memory; empty: there is no device.
  void foresee(Nanos now, int32_t layer, const prediction::Forecast& forecast, std::span<const uint8_t> held);
  /// There are no forecasts for now.
  void clear();

  // The outlook that foresee() made.

  /// The most urgent first, at most kExpertsMax.
  std::span<const ForeseenKey> experts() const { return outlook_; }
  bool scan() const { return scan_; }
  /// Forecasts have lately been nearer to the truth than how often each expert is used.
  bool leads() const { return forecast_.leads(); }
  /// Whether anything in it is likely enough to be read ahead.
  bool useful() const;
  /// Whether the key was foreseen for the last pass of its layer.
  bool was_foreseen(Key key) const { return late_[key] != 0; }

 private:
  struct Candidate {
    Key key = 0;
    int32_t ahead = 0;  ///< layers until its router
    float probability = 0, priority = 0;
  };
  Nanos until_next_router(Nanos now, int32_t layer);
  void choose(int32_t layer, const prediction::Forecast& forecast, std::span<const uint8_t> held);
  void choose_scanned(int32_t layer, std::span<const uint8_t> held);

  const int32_t layers_, experts_;
  CalibratedForecast forecast_;
  LayerPace pace_;
  bool scan_ = false;
  int32_t at_ = -1;                   ///< the layer of this step that was timed last
  std::vector<uint8_t> used_;         ///< [experts] of a layer
  std::vector<uint8_t> told_, late_;  ///< [key]: foreseen since its layer's last pass; before that pass
  std::vector<Candidate> candidates_;
  std::vector<ForeseenKey> outlook_;
};

}  // namespace moestro::tier
