#pragma once
// What a run takes of each memory, by the sums that `moestro up` and the workers use, and what there is.

#include "common/config/device_spec.h"
#include "common/planner/placement.h"
#include "services/cli/plan/plan_model.h"
#include "services/cli/replay/hardware.h"

namespace moestro::cli {

struct PlannedMemory {
  config::DeviceSpec device;
  planner::Needs needs;
  planner::Memories memories;
  std::string host;  ///< whose memory the host's is: "this machine", "configs/hardware/x.yaml"
};

/// `hardware`: null if no file is given. kInvalidArgument names the flag or the key.
Result<PlannedMemory> plan_memory(const PlanOptions& options, const PlannedModel& model, const Hardware* hardware);

}  // namespace moestro::cli
