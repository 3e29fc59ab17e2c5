#pragma once
// The command line of moestro-orchestrator.

#include <optional>
#include <string>

#include "orchestrator/orchestrator.h"

namespace moestro::orchestrator {

/// The options, or the exit code with which the program ends now (--help: 0; a wrong command line: 2, with the reason
/// on stderr).
struct CommandLine {
  std::optional<OrchestratorOptions> options;
  std::string log_level, log_format;
  int exit_code = 0;
};
CommandLine parse_command_line(int argc, char** argv);

}  // namespace moestro::orchestrator
