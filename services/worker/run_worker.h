#pragma once
// Builds a worker from its options and runs it.

#include "services/worker/worker_options.h"

namespace moestro::worker {

/// Attaches, loads and serves. OK after a drain (SIGTERM, SIGINT, or an order of the orchestrator).
Status run_worker(const WorkerOptions& options);

}  // namespace moestro::worker
