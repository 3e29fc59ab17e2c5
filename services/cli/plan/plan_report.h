#pragma once
// A plan as text and as JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/planner/plan.h"
#include "services/cli/plan/plan_memory.h"
#include "services/cli/plan/plan_quality.h"
#include "services/cli/plan/plan_rates.h"

namespace moestro::cli {

/// Everything that a report is about.
struct PlanReport {
  const PlanOptions& options;
  const PlannedModel& model;
  const PlannedMemory& memory;
  const PlannedRates& rates;
  const planner::PlanInput& input;
  const planner::Plan& plan;
  const PlannedQuality& quality;
};

/// What the forecast counts in a simplified way, and what it leaves out: a sentence each.
std::vector<std::string> plan_assumptions(const PlanReport& report);

std::string plan_text(const PlanReport& report);
nlohmann::ordered_json plan_json(const PlanReport& report);

}  // namespace moestro::cli
