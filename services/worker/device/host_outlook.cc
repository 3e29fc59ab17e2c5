#include "services/worker/device/host_outlook.h"

#include <utility>

namespace moestro::device {
namespace {

/// Whether dense weights and all experts of that precision have room. A source without one range of memory has
/// everything.
bool has_room_for_all(const store::BlobSource& host, const ExpertBlobs& blobs) {
  uint64_t bytes = blobs.blob_of.size() * blobs.bytes;
  for (const store::Blob& blob : host.manifest().blobs)
    if (blob.kind == store::BlobKind::kDense) bytes += blob.length;
  return host.memory().empty() || host.memory().size() >= bytes;
}

}  // namespace

Result<std::unique_ptr<HostOutlook>> HostOutlook::create(store::BlobSource& host, DType precision,
                                                         const DeviceExperts* above, const Clock& clock) {
  MOESTRO_ASSIGN_OR_RETURN(ExpertBlobs blobs, ExpertBlobs::of(host.manifest(), precision));
  return std::unique_ptr<HostOutlook>(new HostOutlook(host, std::move(blobs), above, clock));
}

HostOutlook::HostOutlook(store::BlobSource& host, ExpertBlobs blobs, const DeviceExperts* above, const Clock& clock)
    : host_(host),
      blobs_(std::move(blobs)),
      above_(above),
      clock_(clock),
      fits_all_(has_room_for_all(host, blobs_)),
      maker_(blobs_.layers, blobs_.experts),
      held_(above == nullptr ? 0 : blobs_.blob_of.size()) {
  outlook_.reserve(tier::OutlookMaker::kExpertsMax);
}

uint64_t HostOutlook::begin_step(PlanId, bool scan) {
  maker_.begin_step(scan);
  const Nanos now = clock_.now();
  last_step_ = now - std::exchange(began_, now).value_or(now);
  const store::BlobSource::Counters counters = host_.counters();
  return counters.misses + counters.brought;
}

bool HostOutlook::routed(MoeLayerId layer, std::span<const tier::DeviceTier::Wanted> wanted) {
  const uint64_t misses = host_.counters().misses;
  const bool all_there = std::exchange(misses_, misses) == misses;
  // Otherwise nobody asks how good forecasts are, or how long a layer takes.
  if (foreseen_) maker_.routed(clock_.now(), static_cast<int32_t>(layer.value), wanted);
  return all_there;
}

bool HostOutlook::forecast(int32_t layer, const prediction::Forecast& forecast) {
  foreseen_ = true;
  if (above_ != nullptr) above_->mark_held(held_);
  maker_.foresee(clock_.now(), layer, forecast, held_);
  tell();
  return maker_.useful();
}

/// A source that cannot be told reads on demand, so its error is of no interest here.
void HostOutlook::tell() {
  outlook_.clear();
  for (const tier::ForeseenKey& f : maker_.experts())
    outlook_.push_back({blobs_.blob_of[f.key], f.probability, f.due});
  if (outlook_.empty()) return tell_filling();
  standing_ = true;
  (void)host_.foresee({.experts = outlook_, .scan = maker_.scan(), .leads = maker_.leads()});
}

/// Nothing is foreseen.
void HostOutlook::tell_filling() {
  outlook_.clear();
  if (above_ != nullptr && above_->filling()) {
    above_->mark_held(held_);
    for (tier::Key key = 0; key < held_.size() && outlook_.size() < tier::OutlookMaker::kExpertsMax; ++key)
      if (held_[key] == 0) outlook_.push_back({blobs_.blob_of[key], 1, last_step_});
  }
  if (outlook_.empty()) return withdraw();
  standing_ = true;
  (void)host_.foresee({.experts = outlook_, .scan = true});
}

void HostOutlook::withdraw() {
  if (std::exchange(standing_, false)) (void)host_.foresee({});
}

void HostOutlook::unforeseen() {
  if (std::exchange(foreseen_, false)) maker_.clear();
  tell_filling();
}

}  // namespace moestro::device
