#pragma once

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
/// `moestro batch run|submit|status|results|cancel|list`.
void add_batch_command(command_line::App& app, CommandResult& result);
}  // namespace moestro::cli
