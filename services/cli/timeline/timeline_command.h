#pragma once
// moestro timeline FILE... : what the lanes of a recorded timeline did, and what its steps waited for.

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
void add_timeline_command(command_line::App& app, CommandResult& result);
}
