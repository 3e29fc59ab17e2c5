#include "common/machine/supervisor.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace moestro::machine {

Status end_with_supervisor() {
  const char* process = std::getenv(kSupervisorVariable);
  if (process == nullptr) return Status::ok();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (std::to_string(::getppid()) == process) return Status::ok();
  return unavailable("process " + std::string(process) + ", which started this one (" + kSupervisorVariable +
                     "), has ended");
}

}  // namespace moestro::machine
