#pragma once
// The command line of moestro-worker.

#include <chrono>
#include <optional>
#include <string>

#include "common/status.h"
#include "services/worker/engine/engine_options.h"
#include "services/worker/thread_places.h"
#include "services/worker/worker_device.h"

namespace moestro::worker {

struct WorkerOptions {
  std::string store, orchestrator, name = "worker", device_name = "cpu";
  device::WorkerDeviceOptions device;
  std::string trace, timeline, log_level = "info", log_format = "text", fault_points;
  ThreadPlaces places;
  int64_t reserve = 1;
  std::chrono::milliseconds store_wait{60000};  ///< store::AttachOptions
  bool deterministic = false;
  engine::EngineOptions engine;  ///< model, KV, context, precision
  bool chooses_step_buffers = false;  ///< on a GPU: engine.step_tokens_max is only the usual one
};

/// The options, or the exit code with which the program ends now (--help: 0; a wrong command line: 2, with the reason
/// on stderr).
struct CommandLine {
  std::optional<WorkerOptions> options;
  int exit_code = 0;
};
CommandLine parse_command_line(int argc, char** argv);

}  // namespace moestro::worker
