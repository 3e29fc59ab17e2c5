#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
/// `moestro health`.
void add_health_command(CLI::App& app, CommandResult& result);
}  // namespace moestro::cli
