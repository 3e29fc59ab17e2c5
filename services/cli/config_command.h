#pragma once

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
/// `moestro config`: the reference page, or a file checked and shown with every value in effect.
void add_config_command(command_line::App& app, CommandResult& result);
}  // namespace moestro::cli
