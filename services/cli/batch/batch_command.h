#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
/// `moestro batch run|submit|status|results|cancel|list`.
void add_batch_command(CLI::App& app, CommandResult& result);
}  // namespace moestro::cli
