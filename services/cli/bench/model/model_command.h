#pragma once
#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {

/// moestro bench model --shape NAME -o PACK: a pack of random weights of a model's shape.
void add_model_bench(command_line::App& bench, CommandResult& result);

}  // namespace moestro::cli
