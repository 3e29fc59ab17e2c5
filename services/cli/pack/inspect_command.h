#pragma once
#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {

/// moestro inspect PACK: runs when the command line is parsed. `result` must outlive the app.
void add_inspect_command(CLI::App& app, CommandResult& result);

}  // namespace moestro::cli
