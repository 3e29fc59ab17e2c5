#pragma once
// Keeps the bytes that prefetches waste below a share of what the link carries, by adjusting the lowest probability
// that is prefetched.

#include <algorithm>
#include <cstdint>

namespace moestro::tier {

class WasteLimit {
 public:
  /// `window_bytes`: bytes that were carried longer ago than this count half.
  WasteLimit(float floor, float share_max, double window_bytes)
      : least_(floor), floor_(floor), share_max_(share_max), window_(window_bytes) {}

  void moved(uint64_t bytes) {
    moved_ += static_cast<double>(bytes);
    if (moved_ > window_) moved_ /= 2, wasted_ /= 2;
  }
  void set_share_max(float share) { share_max_ = share; }
  void wasted(uint64_t bytes) { wasted_ += static_cast<double>(bytes); }
  /// Call once per forecast: a small step up or down.
  void adjust() {
    if (share_max_ >= 1) return;
    const bool too_much = wasted_ > static_cast<double>(share_max_) * std::max(moved_, window_ / 8);
    floor_ = std::clamp(floor_ + (too_much ? kStep : -kStep), least_, std::max(least_, kFloorMax));
  }
  float floor() const { return floor_; }

 private:
  static constexpr float kStep = 0.002F, kFloorMax = 0.98F;
  const float least_;
  float floor_;
  float share_max_;
  const double window_;
  double moved_ = 0, wasted_ = 0;
};

}  // namespace moestro::tier
