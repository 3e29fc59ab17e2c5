#include "orchestrator/stop_signal.h"

#include <pthread.h>
#include <unistd.h>

namespace moestro::orchestrator {

StopSignals StopSignals::block() {
  StopSignals signals;
  signals.parent_ = ::getppid();
  sigemptyset(&signals.set_);
  sigaddset(&signals.set_, SIGTERM);
  sigaddset(&signals.set_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals.set_, nullptr);
  return signals;
}

/// A death signal (PR_SET_PDEATHSIG) comes from the process that has died, which is not the parent any more by then.
Stop StopSignals::wait() const {
  siginfo_t info{};
  while (::sigwaitinfo(&set_, &info) < 0) {}
  return info.si_pid == parent_ && ::getppid() != parent_ ? Stop::kAtOnce : Stop::kDrain;
}

}  // namespace moestro::orchestrator
