#pragma once
// The parts of a plan's text that compare schedules.

#include <string>

#include "services/cli/plan/plan_report.h"

namespace moestro::cli {

std::string seconds_text(double seconds);
std::string rate_text(double per_s);

/// A line for each schedule, the fastest first: sequences at once (in so many micro-batches). And how the chosen one is
/// arranged.
std::string schedules_text(const PlanReport& report);
/// What the expert pipeline's computing is too short for. Empty if another schedule is the fastest.
std::string bubbles_text(const PlanReport& report);

}  // namespace moestro::cli
