#pragma once
// Stores checkpoints of the activation history in the state, under the model's name.

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

  /// The checkpoint of an earlier process; empty if there is none. A state that cannot be read is logged, and serving
  /// starts without a checkpoint; what is there then is not replaced.
  std::vector<std::byte> load(StateStore& state);
  /// From now on keep() uses the runner's thread, which owns the state. Both outlive close().
  void open(BatchRunner& runner, ControlPlane& control);
  /// From any thread.
  void keep(std::vector<std::byte> checkpoint);
  /// Stores what has changed since, and waits for that at most `limit`. Nothing is stored afterwards.
  void close(std::chrono::milliseconds limit);

 private:
  Status store(StateStore& state, const std::vector<std::byte>& checkpoint);

  const std::string name_;
  bool unread_ = false;  ///< load() could not read the state; then the runner's thread alone uses it
  std::mutex mutex_;
  BatchRunner* runner_ = nullptr;
  ControlPlane* control_ = nullptr;
};

}  // namespace moestro::orchestrator
