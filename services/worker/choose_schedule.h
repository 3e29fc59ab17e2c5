#pragma once
// Which schedule a worker runs, and how it cuts its steps.

#include "common/config/box_config.h"
#include "common/config/device_spec.h"
#include "common/status.h"
#include "services/worker/engine/engine_options.h"

namespace moestro::worker {

/// The schedule for what --schedule says. `moestro up` has asked the planner before (services/cli/plan/box_plan). What
/// is still `auto` here is layerwise where nothing has to move. kUnsupported: no worker runs it, or
/// none on this kind of device.
Result<engine::ScheduleKind> choose_schedule(const config::BoxConfig::Workers& workers, config::DeviceSpec::Kind on);

/// Reads the schedule, its micro-batches, the home of the KV cache and the size of a step into `options`. Refuses what
/// does not go together, and names the flags.
Status take_schedule(const config::BoxConfig& box, config::DeviceSpec::Kind on, engine::EngineOptions& options);

}  // namespace moestro::worker
