#pragma once
// The limits that keep prefetches from doing harm. They are the same between the drive and host memory (store/machine)
// as between host memory and a device (device_tier).

#include <algorithm>
#include <cstdint>

namespace moestro::tier {

/// Calibrated probability below which nothing is prefetched.
inline constexpr float kPrefetchFloor = 0.25F;
/// Of the floor: a prefetch that has become less likely than this is given up.
inline constexpr float kDropBelow = 0.5F;
/// Of what a forecast says of a scan, where it says anything: a scan prefetches what is at least as likely.
inline constexpr float kScanLikely = 0.3F;
/// Layers that a scan prefetches, whole and in order.
inline constexpr int32_t kScanLayersAhead = 2;
/// A prefetch that evicts waits until the link needs this share of the time left for what is due by then.
inline constexpr double kEarly = 1.5;
/// The same of a device, where much of what is due may come while its layer is computed.
inline constexpr double kEarlyToDevice = 1.1;
/// A prefetch to a device evicts only if it saves this share of a copy's time on average: its probability, times the
/// share of the copy that its layer would otherwise wait for.
inline constexpr double kLeastSaved = 0.1;
/// A quarter of the room is what a scan may hold ahead of its demands.
inline constexpr uint64_t kScanShare = 4;
/// Prefetches to a device whose host memory is leased ahead of their copies: the link must not run dry while a layer is
/// computed.
inline constexpr int32_t kSourcesAhead = 16;
/// Experts carried over which the waste is measured.
inline constexpr double kWasteWindow = 512;

/// Priority is activation probability times this. `ahead`: layers until the router, 1 to `layers`.
constexpr float proximity(int32_t ahead, int32_t layers) {
  return 1 - static_cast<float>(ahead - 1) / static_cast<float>(layers);
}

/// The share of the moved bytes that prefetches may waste. If `room` holds at least a fifth of `all`, most needed
/// experts are present. With less room, prefetching is the main use of the link, and it may carry 1.4 times what is
/// used.
constexpr float waste_share(double room, double all) { return room * 5 >= all ? 0.13F : 0.28F; }

/// Passes until an expert is used, on average, if its next pass is `ahead` passes away, uses it with `probability`, and
/// each later pass with probability `later`.
constexpr double passes_until(double ahead, double probability, double later) {
  return ahead + (1 - probability) / std::clamp(later, 1e-3, 1.0);
}

}  // namespace moestro::tier
