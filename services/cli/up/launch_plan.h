#pragma once
// The command lines of a box's programs.

#include <filesystem>
#include <string>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"
#include "services/cli/up/supervisor.h"

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

/// Letters, digits, '.', '_', '-'; not a leading '.'; at most 64: it becomes part of paths and of NAME=PACK.
Status check_model_name(const std::string& name);

/// What has to be right before anything is made or started: a model, its pack, its name (filled in from the
/// pack where empty), HOST:PORT.
Status check_box(config::BoxConfig& box);

/// "routes.jsonl.zst", "worker-1" -> "routes.worker-1.jsonl.zst".
std::filesystem::path insert_name(const std::filesystem::path& file, const std::string& name);

/// Store first, then the workers, then the orchestrator. `cores`: of the machine, shared out where threads
/// are auto.
std::vector<Launch> plan_launches(const config::BoxConfig& box, const Places& places, int64_t cores);

}  // namespace moestro::cli
