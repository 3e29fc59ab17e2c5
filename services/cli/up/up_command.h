#pragma once

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
/// `moestro up`.
void add_up_command(command_line::App& app, CommandResult& result);
}  // namespace moestro::cli
