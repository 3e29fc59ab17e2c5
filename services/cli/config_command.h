#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
/// `moestro config`: the reference page, or a file checked and shown with every value in effect.
void add_config_command(CLI::App& app, CommandResult& result);
}  // namespace moestro::cli
