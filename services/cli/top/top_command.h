#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {

/// `moestro top`.
void add_top_command(CLI::App& app, CommandResult& result);

}  // namespace moestro::cli
