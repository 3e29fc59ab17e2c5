#pragma once
// Where a plan's rates come from: a hardware file, an earlier measurement, or a measurement now.

#include <string>

#include "common/planner/rates.h"
#include "services/cli/plan/plan_memory.h"

namespace moestro::cli {

struct PlannedRates {
  planner::Rates rates;
  std::string source;  ///< for people: "measured on this machine", "configs/hardware/l4.yaml"
};

/// `drive_needed`: whether experts have to be read while it runs. kInvalidArgument names the key that a hardware file
/// does not have.
Result<PlannedRates> plan_rates(const PlanOptions& options, const PlannedModel& model, const PlannedMemory& memory,
                                const Hardware* hardware, bool drive_needed);

}  // namespace moestro::cli
