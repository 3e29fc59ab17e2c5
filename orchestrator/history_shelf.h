#pragma once
// Where checkpoints of the activation history lie: in the state, under the model's name.

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "orchestrator/batch/batch_runner.h"
#include "orchestrator/control/control_plane.h"

namespace moestro::orchestrator {

class HistoryShelf {
 public:
  explicit HistoryShelf(const std::string& model) : name_("history/" + model) {}

  /// What a former process has left; empty if there is nothing. A state that cannot be read is told, and serving starts
  /// without.
  std::vector<std::byte> load(StateStore& state) const;
  /// From here on keep() goes to the runner's thread, which owns the state. Both outlive close().
  void open(BatchRunner& runner, ControlPlane& control);
  /// From any thread.
  void keep(std::vector<std::byte> checkpoint);
  /// Keeps what has changed since, and waits for that, but no longer than `limit`. Nothing is kept afterwards.
  void close(std::chrono::milliseconds limit);

 private:
  const std::string name_;
  std::mutex mutex_;
  BatchRunner* runner_ = nullptr;
  ControlPlane* control_ = nullptr;
};

}  // namespace moestro::orchestrator
