#pragma once
// The memory tiers in /metrics and in the status: device, dram, nvme. Workers count what layers found; the store counts
// what it reads.

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "orchestrator/control/control_plane.h"
#include "orchestrator/store_watch/store_watch.h"

namespace moestro::orchestrator {

/// The families moestro_tier_*, moestro_device_* and moestro_worker_device_*, in Prometheus' text format. `store`: none
/// if it does not answer.
std::string tier_metrics_text(const std::string& model, const ControlSnapshot& control,
                              const std::optional<StoreFigures>& store);

/// "dram", and where there are such: "device", "nvme".
/// Choices of experts by the copies that served; by tier and layer where there were workers with low copies.
nlohmann::json mixed_status(const ControlSnapshot& control);
nlohmann::json tiers_status(const ControlSnapshot& control, const std::optional<StoreFigures>& store);

/// Of one worker's device; null for a worker that has none with a memory of its own.
nlohmann::json device_status(const ControlSnapshot::Worker& worker);

/// {"layers", "experts", "half_life_s", "shares": [[...], ...]}: each layer's shares, to four digits behind the point.
nlohmann::json experts_status(const ExpertShares& shares);

/// Of all packs.
uint64_t pack_bytes(const StoreFigures& store);

/// What the devices of the workers that are there have room for and hold.
struct DeviceRoom {
  uint64_t capacity_bytes = 0, used_bytes = 0, slots = 0, resident = 0, workers = 0;
  RecentUses recent;
};
DeviceRoom room_of(const ControlSnapshot& control);

/// What is said of every MoE layer: in /metrics moestro_device_layer_NAME_total, in the status a list by that name.
struct LayerFigure {
  const char* name;
  const char* help;
  uint64_t DeviceUse::*value;
};
inline constexpr std::array kByLayer{
    LayerFigure{"hits", "Experts that were on a device when this MoE layer wanted them.", &DeviceUse::hits},
    LayerFigure{"misses", "Experts that were not.", &DeviceUse::misses},
    LayerFigure{"late", "Of them, those that were on their way.", &DeviceUse::late},
    LayerFigure{"evictions", "Experts of this layer that gave way.", &DeviceUse::evictions},
    LayerFigure{"prefetched", "Experts of this layer that were brought ahead.", &DeviceUse::prefetched},
    LayerFigure{"prefetched_used", "Of them, used.", &DeviceUse::prefetched_used},
    LayerFigure{"prefetched_wasted", "Of them, evicted unused.", &DeviceUse::prefetched_wasted}};

}  // namespace moestro::orchestrator
