#pragma once
// What `doctor` makes of the GPUs.

#include <vector>

#include "services/cli/doctor/findings.h"

namespace moestro::cli {

/// One for each device, "GPU 0"; where CUDA sees none, one "GPU" that says why. None of them is ever `missing`: the CPU
/// computes.
std::vector<Finding> judge_gpus(const MachineFacts& facts);

}  // namespace moestro::cli
