#pragma once
// Which state `orchestrator.state` names.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "orchestrator/state/redis_place.h"
#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

struct StatePlace {
  /// SQLite: the state's file and, beside it, the folder of uploaded files and results.
  std::filesystem::path database, files;
  /// Redis has both.
  std::optional<RedisPlace> redis = {};
  /// For messages; holds no password.
  std::string shown() const { return redis ? redis->shown() : database.string(); }
};

/// "sqlite:PATH", a path, "redis://...", or "default": RUN_DIR/state/batches.db. Others are refused by name.
Result<StatePlace> state_place(const std::string& setting, const std::filesystem::path& run_dir);
/// `host` and `lease`: who this is to others who share the state, and how long they wait for a word of it.
Result<std::unique_ptr<StateStore>> open_state(const StatePlace& place, const std::string& host,
                                               std::chrono::milliseconds lease);
/// A name that no other process has had: host, process id, and a random number.
std::string new_host_name();
/// Whether what lies there is gone when the machine restarts (a file system in memory).
bool lies_in_memory(const std::filesystem::path& path);

}  // namespace moestro::orchestrator
