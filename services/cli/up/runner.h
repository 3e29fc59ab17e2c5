#pragma once
// Carries out what the Supervisor decides.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/config/host_port.h"
#include "services/cli/up/launch_plan.h"
#include "services/cli/up/process.h"
#include "services/cli/up/supervisor.h"

namespace moestro::cli {

struct RunnerConfig {
  Places places;
  std::vector<Launch> launches;
  config::HostPort http;
  bool https = false;
  SupervisorLimits limits;
};

/// Runs the programs until the user stops them or they cannot be kept running. Prints "ready http[s]://HOST:PORT" on
/// stdout, everything else on stderr. OK after a drain. An error is followed on stderr by the last log lines of the
/// program that caused it, unless that program said in one line why it ended.
Status run_programs(RunnerConfig config);

}  // namespace moestro::cli
