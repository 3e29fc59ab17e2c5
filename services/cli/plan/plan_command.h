#pragma once
#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {

/// moestro plan: whether a model fits, how fast it will be, and what bounds it.
void add_plan_command(command_line::App& app, CommandResult& result);

}  // namespace moestro::cli
