#pragma once
// The scheduler's options for a control plane.

#include "orchestrator/scheduler/scheduler.h"

namespace moestro::orchestrator {

struct ControlOptions;

/// With a new secret for the keys of prefixes.
SchedulerOptions scheduler_options(const ControlOptions& options);

}  // namespace moestro::orchestrator
