#pragma once
// The command lines of a box's programs.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"
#include "services/cli/up/supervisor.h"
#include "services/cli/up/worker_places.h"

namespace moestro::cli {

struct Places {
  std::filesystem::path run_dir;
  std::filesystem::path arena_dir;
};

struct Launch {
  Program program;
  std::string binary;                  ///< "moestro-store"
  std::vector<std::string> arguments;  ///< without the binary
};

/// Checks the box before anything is created or started: a model, its pack, its name (taken from the pack if empty),
/// HOST:PORT. Returns a device for each worker.
Result<std::vector<WorkerPlace>> check_box(config::BoxConfig& box, const MachineDevices& machine);

/// RUN_DIR/box.yaml: the configuration in effect, from which every program of the box starts.
std::filesystem::path box_file(const Places& places);

/// Writes it completely or not at all, with the places filled in.
Status write_box_file(config::BoxConfig box, const Places& places);

/// Store first, then the workers, then the orchestrator. `memory_nodes`: nodes that weights may be placed on.
std::vector<Launch> plan_launches(const config::BoxConfig& box, const Places& places,
                                  const std::vector<WorkerPlace>& workers, std::span<const int> memory_nodes);

}  // namespace moestro::cli
