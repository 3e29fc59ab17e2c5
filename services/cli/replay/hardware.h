#pragma once
// Devices as files: configs/hardware/NAME.yaml.

#include <filesystem>
#include <string>

#include "common/status.h"
#include "common/tier/replay.h"

namespace moestro::cli {

struct Hardware {
  std::string name;
  uint64_t memory_bytes = 0;
  double memory_bytes_per_s = 0, flops = 0, link_bytes_per_s = 0;
  double link_latency_us = 10;
};

/// kInvalidArgument names the file, line and key.
Result<Hardware> read_hardware(const std::filesystem::path& path);

/// The time of a model's parts on this hardware: the longer of reading their weights once and multiplying with them, at
/// the share of the peaks that kernels reach.
struct ModelCost {
  uint64_t expert_bytes = 0;
  uint64_t attention_bytes = 0;  ///< dense weights of a layer
  double bytes_per_weight = 2;
};
tier::ReplayTimes times_on(const Hardware& hardware, const ModelCost& model);

}  // namespace moestro::cli
