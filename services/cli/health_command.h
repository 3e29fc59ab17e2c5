#pragma once

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
/// `moestro health`.
void add_health_command(command_line::App& app, CommandResult& result);
}  // namespace moestro::cli
