#pragma once
// `moestro bench store`.

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {

void add_store_bench(command_line::App& bench, CommandResult& result);

}  // namespace moestro::cli
