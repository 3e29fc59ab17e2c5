#pragma once
// The states there are, for tests that hold for each.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "orchestrator/batch/file_store.h"
#include "orchestrator/state/state_store.h"
#include "tests/cli/temp_dir.h"
#include "tests/state/redis_server.h"

namespace moestro::test {

enum class Backend { kSqlite, kRedis };
inline std::string backend_name(Backend backend) { return backend == Backend::kSqlite ? "Sqlite" : "Redis"; }

/// One state, which can be opened again.
class StateBox {
 public:
  explicit StateBox(Backend backend);
  /// The state and the files that belong to it. Redis: as another orchestrator each time.
  struct Opened {
    std::unique_ptr<orchestrator::StateStore> state;
    std::unique_ptr<orchestrator::FileStore> files;
  };
  Opened open();
  RedisServer& redis() { return *redis_; }
  /// How that of the last open() is called in Redis.
  const std::string& host() const { return host_; }
  void set_lease(std::chrono::milliseconds lease) { lease_ = lease; }
  std::filesystem::path database() const { return dir_ / "state.db"; }

 private:
  TempDir dir_;
  std::optional<RedisServer> redis_;
  std::string host_;
  std::chrono::milliseconds lease_{300};
};

}  // namespace moestro::test
