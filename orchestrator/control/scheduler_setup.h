#pragma once
// The scheduler as a control plane wants it.

#include "orchestrator/scheduler/scheduler.h"

namespace moestro::orchestrator {

struct ControlOptions;

/// With a secret of its own for the keys of prefixes.
SchedulerOptions scheduler_options(const ControlOptions& options);

}  // namespace moestro::orchestrator
