#include "services/worker/device/host_outlook.h"

#include <algorithm>
#include <utility>

namespace moestro::device {
namespace {

constexpr float kLeast = tier::kDropBelow * tier::kPrefetchFloor;

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
      forecast_(blobs_.layers, blobs_.experts),
      used_(static_cast<size_t>(blobs_.experts)),
      held_(above == nullptr ? 0 : blobs_.blob_of.size()),
      told_(blobs_.blob_of.size()),
      late_(blobs_.blob_of.size()) {
  candidates_.reserve(blobs_.blob_of.size());
  outlook_.reserve(kExpertsMax);
}

uint64_t HostOutlook::begin_step(PlanId, bool scan) {
  if (scan_ != scan) forecast_.clear();
  scan_ = scan, at_ = -1;
  const store::BlobSource::Counters counters = host_.counters();
  return counters.misses + counters.brought;
}

bool HostOutlook::routed(MoeLayerId layer, std::span<const tier::DeviceTier::Wanted> wanted) {
  const uint64_t misses = host_.counters().misses;
  const bool all_there = std::exchange(misses_, misses) == misses;
  if (!foreseen_) return all_there;  // nobody asks how good forecasts are, or how long a layer takes
  const auto number = static_cast<int32_t>(layer.value);
  pace_.routed(clock_.now(), at_ < 0 ? 0 : number - at_, scan_);
  at_ = number;
  const std::ptrdiff_t first = std::ptrdiff_t{number} * blobs_.experts;
  std::copy_n(told_.begin() + first, blobs_.experts, late_.begin() + first);
  std::fill_n(told_.begin() + first, blobs_.experts, uint8_t{0});
  if (scan_) return all_there;
  std::ranges::fill(used_, uint8_t{0});
  for (const auto& w : wanted) used_[w.key % static_cast<tier::Key>(blobs_.experts)] = 1;
  forecast_.routed(number, used_);
  return all_there;
}

bool HostOutlook::forecast(int32_t layer, const prediction::Forecast& forecast) {
  foreseen_ = true;
  forecast_.foresee(layer, forecast, !scan_);
  if (above_ != nullptr) above_->mark_held(held_);
  candidates_.clear();
  if (scan_) choose_scanned(layer);
  else choose(layer, forecast);
  // Before the first layer its time begins now.
  tell(layer >= 0 && layer == at_ ? clock_.now() - pace_.last() : Nanos{0});
  return std::ranges::any_of(candidates_, [](const Candidate& c) { return c.probability >= tier::kPrefetchFloor; });
}

void HostOutlook::choose(int32_t layer, const prediction::Forecast& forecast) {
  for (tier::Key key = 0; key < blobs_.blob_of.size(); ++key) {
    const float probability = forecast_.probability(key);
    if (probability < kLeast || held_above(key)) continue;
    const int32_t ahead = forecast.distance(layer, static_cast<int32_t>(key) / blobs_.experts);
    candidates_.push_back(
        {key, ahead, probability, probability * tier::proximity(ahead, blobs_.layers)});
  }
  const size_t kept = std::min(candidates_.size(), kExpertsMax);
  std::ranges::partial_sort(
      candidates_, candidates_.begin() + static_cast<std::ptrdiff_t>(kept), [](const auto& a, const auto& b) {
        return a.priority != b.priority ? a.priority > b.priority : a.key < b.key;
      });
  candidates_.resize(kept);
}

/// The next layers, whole and in order, less what a forecast rules out.
void HostOutlook::choose_scanned(int32_t layer) {
  const int32_t last = std::min(layer + tier::kScanLayersAhead, blobs_.layers - 1);
  const auto experts = static_cast<tier::Key>(blobs_.experts);
  for (int32_t next = layer + 1; next <= last; ++next)
    for (tier::Key key = static_cast<tier::Key>(next) * experts; key < static_cast<tier::Key>(next + 1) * experts;
         ++key) {
      const float probability = forecast_.knows(next) ? forecast_.probability(key) : 1.0F;
      if (probability < tier::kScanLikely || held_above(key)) continue;
      if (candidates_.size() == kExpertsMax) return;
      candidates_.push_back({key, next - layer, probability, 1});
    }
}

/// A source that cannot be told reads on demand, so its error is of no interest here.
void HostOutlook::tell(Nanos since_router) {
  outlook_.clear();
  for (const Candidate& c : candidates_) told_[c.key] = 1;
  for (const Candidate& c : candidates_)
    outlook_.push_back({blobs_.blob_of[c.key], c.probability,
                        std::max(Nanos{0}, pace_.per_layer(scan_) * c.ahead - since_router)});
  if (outlook_.empty()) return withdraw();
  standing_ = true;
  (void)host_.foresee({.experts = outlook_, .scan = scan_, .leads = forecast_.leads()});
}

void HostOutlook::withdraw() {
  if (std::exchange(standing_, false)) (void)host_.foresee({});
}

void HostOutlook::unforeseen() {
  if (!std::exchange(foreseen_, false)) return;
  forecast_.clear();
  for (std::vector<uint8_t>* flags : {&told_, &late_}) std::ranges::fill(*flags, uint8_t{0});
  withdraw();
}

}  // namespace moestro::device
