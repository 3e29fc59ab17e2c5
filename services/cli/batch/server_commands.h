#pragma once

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
/// `moestro batch submit|status|results|cancel|list`.
void add_server_commands(command_line::App& batch, CommandResult& result);
}  // namespace moestro::cli
