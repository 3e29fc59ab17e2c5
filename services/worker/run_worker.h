#pragma once
// Builds a worker from its options and runs it.

#include "services/worker/worker_options.h"

namespace moestro::worker {

/// Attaches, loads, serves. OK after a drain (SIGTERM, SIGINT, or the orchestrator's wish).
Status run_worker(const WorkerOptions& options);

}  // namespace moestro::worker
