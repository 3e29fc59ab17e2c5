#pragma once
// How the orchestrator is told to stop: SIGTERM or SIGINT.

#include <csignal>

namespace moestro::orchestrator {

enum class Stop {
  kDrain,   ///< requests under way are ended first
  kAtOnce,  ///< whoever started this process is gone and its workers are going too: nothing can be ended
};

/// Both are blocked from here on, in this thread and those that it starts, and taken by one that waits for them.
class StopSignals {
 public:
  static StopSignals block();
  Stop wait() const;

 private:
  StopSignals() = default;
  sigset_t set_{};
  pid_t parent_ = 0;  ///< at the beginning
};

}  // namespace moestro::orchestrator
