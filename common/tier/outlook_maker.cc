#include "common/tier/outlook_maker.h"

#include <algorithm>

#include "common/tier/prefetch_rules.h"

namespace moestro::tier {
namespace {

constexpr float kLeastForeseen = kDropBelow * kPrefetchFloor;

bool is_held(std::span<const uint8_t> held, Key key) { return !held.empty() && held[key] != 0; }

}  // namespace

OutlookMaker::OutlookMaker(int32_t layers, int32_t experts)
    : layers_(layers),
      experts_(experts),
      forecast_(layers, experts),
      used_(static_cast<size_t>(experts)),
      told_(static_cast<size_t>(layers) * used_.size()),
      late_(told_.size()) {
  candidates_.reserve(told_.size());
  outlook_.reserve(kExpertsMax);
}

void OutlookMaker::begin_step(bool scan) {
  if (scan_ != scan) forecast_.clear();
  scan_ = scan, at_ = -1;
}

void OutlookMaker::routed(Nanos now, int32_t layer, std::span<const DeviceTier::Wanted> wanted) {
  pace_.routed(now, at_ < 0 ? 0 : layer - at_, scan_);
  at_ = layer;
  const std::ptrdiff_t first = std::ptrdiff_t{layer} * experts_;
  std::copy_n(told_.begin() + first, experts_, late_.begin() + first);
  std::fill_n(told_.begin() + first, experts_, uint8_t{0});
  if (scan_) return;
  std::ranges::fill(used_, uint8_t{0});
  for (const auto& w : wanted) used_[w.key % static_cast<Key>(experts_)] = 1;
  forecast_.routed(layer, used_);
}

void OutlookMaker::foresee(Nanos now, int32_t layer, const prediction::Forecast& forecast,
                           std::span<const uint8_t> held) {
  forecast_.foresee(layer, forecast, !scan_);
  candidates_.clear(), outlook_.clear();
  if (scan_) choose_scanned(layer, held);
  else choose(layer, forecast, held);
  const Nanos next = until_next_router(now, layer);
  for (const Candidate& c : candidates_) {
    told_[c.key] = 1;
    outlook_.push_back({c.key, c.probability, std::max(Nanos{0}, next + pace_.per_layer(scan_) * (c.ahead - 1))});
  }
}

/// Less than 0: it takes longer than usual.
Nanos OutlookMaker::until_next_router(Nanos now, int32_t layer) {
  if (layer < 0) return pace_.began(now), pace_.until_first(scan_);
  return pace_.per_layer(scan_) - (layer == at_ ? now - pace_.last() : Nanos{0});
}

void OutlookMaker::choose(int32_t layer, const prediction::Forecast& forecast, std::span<const uint8_t> held) {
  for (Key key = 0; key < told_.size(); ++key) {
    const float probability = forecast_.probability(key);
    if (probability < kLeastForeseen || is_held(held, key)) continue;
    const int32_t ahead = forecast.distance(layer, static_cast<int32_t>(key) / experts_);
    candidates_.push_back({key, ahead, probability, probability * proximity(ahead, layers_)});
  }
  const size_t kept = std::min(candidates_.size(), kExpertsMax);
  std::ranges::partial_sort(
      candidates_, candidates_.begin() + static_cast<std::ptrdiff_t>(kept), [](const auto& a, const auto& b) {
        return a.priority != b.priority ? a.priority > b.priority : a.key < b.key;
      });
  candidates_.resize(kept);
}

/// The next layers, whole and in order, less what a forecast rules out.
void OutlookMaker::choose_scanned(int32_t layer, std::span<const uint8_t> held) {
  const int32_t last = std::min(layer + kScanLayersAhead, layers_ - 1);
  const auto experts = static_cast<Key>(experts_);
  for (int32_t next = layer + 1; next <= last; ++next)
    for (Key key = static_cast<Key>(next) * experts; key < static_cast<Key>(next + 1) * experts; ++key) {
      const float probability = forecast_.knows(next) ? forecast_.probability(key) : 1.0F;
      if (probability < kScanLikely || is_held(held, key)) continue;
      if (candidates_.size() == kExpertsMax) return;
      candidates_.push_back({key, next - layer, probability, 1});
    }
}

bool OutlookMaker::useful() const {
  return std::ranges::any_of(outlook_, [](const ForeseenKey& f) { return f.probability >= kPrefetchFloor; });
}

void OutlookMaker::clear() {
  forecast_.clear();
  for (std::vector<uint8_t>* flags : {&told_, &late_}) std::ranges::fill(*flags, uint8_t{0});
}

}  // namespace moestro::tier
