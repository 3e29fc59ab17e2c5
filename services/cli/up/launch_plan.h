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

/// What has to be right before anything is made or started: a model, its pack, its name (filled in from the
/// pack where empty), HOST:PORT, a device for each worker, which it returns.
Result<std::vector<WorkerPlace>> check_box(config::BoxConfig& box, const MachineDevices& machine);

/// RUN_DIR/box.yaml: the configuration in effect, from which every program of the box starts.
std::filesystem::path box_file(const Places& places);

/// Writes it, whole or not at all, with the places filled in.
Status write_box_file(config::BoxConfig box, const Places& places);

/// Store first, then the workers, then the orchestrator. `memory_nodes`: that weights may be put on.
std::vector<Launch> plan_launches(const config::BoxConfig& box, const Places& places,
                                  const std::vector<WorkerPlace>& workers, std::span<const int> memory_nodes);

}  // namespace moestro::cli
