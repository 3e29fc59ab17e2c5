#pragma once
// moestro bench: see each subcommand's --help.

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
void add_bench_command(command_line::App& app, CommandResult& result);
}
