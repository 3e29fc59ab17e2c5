#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
/// `moestro complete`.
void add_complete_command(CLI::App& app, CommandResult& result);
/// `moestro chat`.
void add_chat_command(CLI::App& app, CommandResult& result);
}  // namespace moestro::cli
