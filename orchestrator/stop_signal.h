#pragma once
// How the orchestrator is told to stop: SIGTERM or SIGINT.

#include <csignal>

namespace moestro::orchestrator {

enum class Stop {
  kDrain,   ///< running requests are finished first
  kAtOnce,  ///< the process that started this one is gone and its workers are ending too, so no request can be finished
};

/// Blocks both signals in this thread and in threads that it starts later. One thread waits for them.
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
