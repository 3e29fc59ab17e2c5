#pragma once

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {

/// `moestro top`.
void add_top_command(command_line::App& app, CommandResult& result);

}  // namespace moestro::cli
