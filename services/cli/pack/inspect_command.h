#pragma once
#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {

/// moestro inspect PACK: runs when the command line is parsed. `result` must outlive the app.
void add_inspect_command(command_line::App& app, CommandResult& result);

}  // namespace moestro::cli
