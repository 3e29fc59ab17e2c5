#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
/// `moestro batch submit|status|results|cancel|list`.
void add_server_commands(CLI::App& batch, CommandResult& result);
}  // namespace moestro::cli
