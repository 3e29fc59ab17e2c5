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

}  // namespace moestro::planner
