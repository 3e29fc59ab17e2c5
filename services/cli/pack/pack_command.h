#pragma once
#include "services/cli/common/command.h"
#include "services/cli/pack/inspect_command.h"  // main() registers both
#include "services/command_line/command_line.h"

namespace moestro::cli {

/// moestro pack SRC -o PACK: runs when the command line is parsed. `result` must outlive the app.
void add_pack_command(command_line::App& app, CommandResult& result);

}  // namespace moestro::cli
