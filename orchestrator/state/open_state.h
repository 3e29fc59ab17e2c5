#pragma once
// Opens the state that `orchestrator.state` names.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "orchestrator/state/redis_place.h"
#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

struct StatePlace {
  /// SQLite: the state's file and, next to it, the folder of uploaded files and results.
  std::filesystem::path database, files;
  /// Redis has both.
  std::optional<RedisPlace> redis = {};
  /// For messages; holds no password.
  std::string shown() const { return redis ? redis->shown() : database.string(); }
};

/// "sqlite:PATH", a path, "redis://...", or "default": RUN_DIR/state/batches.db. Others are refused by name.
Result<StatePlace> state_place(const std::string& setting, const std::filesystem::path& run_dir);
/// `host`: the name (host_name.h) of this process for others that share the state. `lease`: how long they wait for a
/// renewal of it.
Result<std::unique_ptr<StateStore>> open_state(const StatePlace& place, const std::string& host,
                                               std::chrono::milliseconds lease);
/// Whether `path` is on a file system in memory, which a restart of the machine clears.
bool lies_in_memory(const std::filesystem::path& path);

}  // namespace moestro::orchestrator
