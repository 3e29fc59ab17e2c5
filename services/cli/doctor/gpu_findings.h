#pragma once
// The findings of `doctor` about GPUs.

#include <vector>

#include "services/cli/doctor/findings.h"

namespace moestro::cli {

/// One for each device, "GPU 0". If CUDA sees none, one finding "GPU" that says why. They are never `missing`, because
/// the CPU can compute.
std::vector<Finding> judge_gpus(const MachineFacts& facts);

}  // namespace moestro::cli
