#pragma once

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
/// `moestro store add|replace|remove|list`.
void add_store_command(command_line::App& app, CommandResult& result);
}  // namespace moestro::cli
