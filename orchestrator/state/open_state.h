#pragma once
// Which state `orchestrator.state` names.

#include <filesystem>
#include <memory>
#include <string>

#include "common/status.h"
#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

/// The state's file and, beside it, the folder of uploaded files and results.
struct StatePlace {
  std::filesystem::path database, files;
};

/// "sqlite:PATH", a path, or "default": RUN_DIR/state/batches.db. Others, Redis among them, are refused by name.
Result<StatePlace> state_place(const std::string& setting, const std::filesystem::path& run_dir);
Result<std::unique_ptr<StateStore>> open_state(const StatePlace& place);
/// Whether what lies there is gone when the machine restarts (a file system in memory).
bool lies_in_memory(const std::filesystem::path& path);

}  // namespace moestro::orchestrator
