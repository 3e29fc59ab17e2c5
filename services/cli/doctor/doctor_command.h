#pragma once

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
/// `moestro doctor`.
void add_doctor_command(CLI::App& app, CommandResult& result);
}  // namespace moestro::cli
