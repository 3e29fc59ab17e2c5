#pragma once
// moestro bench: see each subcommand's --help.

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
void add_bench_command(CLI::App& app, CommandResult& result);
}
