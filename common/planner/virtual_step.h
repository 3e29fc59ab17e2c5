#pragma once
// A step of an arrangement on virtual lanes: the schedule itself decides the order, and queues count.

#include <memory>

#include "common/planner/group_times.h"
#include "common/planner/virtual_run.h"

namespace moestro::planner {

/// For expert-pipeline and cgo. Of a model with many equal layers some are run, and the others take as long as the last
/// of them. What is not known from lanes (bytes, parts of computing) is from the closed form.
Result<StepForecast> virtual_step(const PlanInput& input, const Arrangement& arrangement, const Placement& placement,
                                  const PhaseSteps& steps);

/// Where workers run it, the next step begins to bring experts while this one still computes. With few layers that
/// counts, and forecasts have it; with more, every step begins with nothing on its way.
bool steps_follow_one_another(const PlanInput& input);

}  // namespace moestro::planner
