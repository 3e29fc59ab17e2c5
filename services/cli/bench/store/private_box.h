#pragma once
// The benchmark's own store and workers: the same programs that users run, in a temporary run directory. The destructor
// ends them.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"
#include "services/cli/up/arena_dir.h"
#include "services/cli/up/launch_plan.h"

namespace moestro::cli {

class PrivateBox {
 public:
  /// Starts nothing yet. The arena is where `moestro up` would put it.
  static Result<std::unique_ptr<PrivateBox>> create(config::BoxConfig box);
  ~PrivateBox();
  PrivateBox(const PrivateBox&) = delete;
  PrivateBox& operator=(const PrivateBox&) = delete;

  /// Returns when the store listens. An error has its last log line.
  Status start_store();
  /// Returns when the worker has registered with the orchestrator. Seconds from its start.
  Result<double> start_worker(size_t index);
  /// Returns when it listens.
  Status start_orchestrator();
  /// Kills it with SIGKILL and waits for its end.
  void kill_store();

  std::string endpoint() const;
  const std::string& model() const { return box_.model.name; }
  std::string arena_explanation() const { return arena_->explanation(); }
  const std::filesystem::path& arena_dir() const { return arena_->path(); }
  /// The orchestrator's port; 0 before it listens.
  int http_port() const;
  /// The running programs: the store first, then the workers, without the orchestrator.
  std::vector<pid_t> processes() const;
  pid_t orchestrator_pid() const { return pids_[orchestrator()]; }
  size_t workers() const { return launches_.size() - 2; }

 private:
  explicit PrivateBox(config::BoxConfig box) : box_(std::move(box)) {}
  Status begin(size_t program);
  void end(size_t program, int signal);
  std::filesystem::path log(size_t program) const;
  /// Checks every millisecond until `reached`, the program's end, or a minute.
  template <typename Reached>
  Status wait(size_t program, const char* what, Reached reached);
  size_t orchestrator() const { return launches_.size() - 1; }

  config::BoxConfig box_;
  std::filesystem::path run_dir_;
  std::optional<ArenaDir> arena_;
  std::vector<Launch> launches_;
  std::vector<pid_t> pids_;
};

}  // namespace moestro::cli
