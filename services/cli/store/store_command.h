#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
/// `moestro store add|replace|remove|list`.
void add_store_command(CLI::App& app, CommandResult& result);
}  // namespace moestro::cli
