#pragma once
#include "services/cli/command.h"
#include "services/cli/pack/inspect_command.h"  // main() registers both

namespace CLI {
class App;
}

namespace moestro::cli {

/// moestro pack SRC -o PACK: runs when the command line is parsed. `result` must outlive the app.
void add_pack_command(CLI::App& app, CommandResult& result);

}  // namespace moestro::cli
