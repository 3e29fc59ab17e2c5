#pragma once
// Hardware as files: configs/hardware/NAME.yaml. A device and its link, and perhaps its host.

#include <filesystem>
#include <optional>
#include <string>

#include "common/status.h"
#include "common/tier/replay.h"

namespace moestro::cli {

/// The share of the peaks on a data sheet that kernels reach.
inline constexpr double kReachedOfPeak = 0.8;

/// Figures of a host; those that the file does not have are absent.
struct HostHardware {
  std::optional<uint64_t> memory_bytes;
  std::optional<double> memory_bytes_per_s, flops, drive_bytes_per_s;
};

struct Hardware {
  std::string name;
  uint64_t memory_bytes = 0;  ///< 0: the file has no device
  double memory_bytes_per_s = 0, flops = 0, link_bytes_per_s = 0;
  double link_latency_us = 10;
  HostHardware host;
};

/// kInvalidArgument names the file, line and key. `device`: whether the file must describe one.
Result<Hardware> read_hardware(const std::filesystem::path& path, bool device = true);

/// The time of a model's parts on this hardware: the longer of reading their weights once and multiplying with them, at
/// the share of the peaks that kernels reach.
struct ModelCost {
  uint64_t expert_bytes = 0;
  uint64_t attention_bytes = 0;  ///< dense weights of a layer
  double bytes_per_weight = 2;
};
tier::ReplayTimes times_on(const Hardware& hardware, const ModelCost& model);

}  // namespace moestro::cli
