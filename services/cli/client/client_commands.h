#pragma once

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
/// `moestro complete`.
void add_complete_command(command_line::App& app, CommandResult& result);
/// `moestro chat`.
void add_chat_command(command_line::App& app, CommandResult& result);
}  // namespace moestro::cli
