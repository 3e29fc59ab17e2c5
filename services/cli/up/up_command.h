#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
/// `moestro up`.
void add_up_command(CLI::App& app, CommandResult& result);
}  // namespace moestro::cli
