#pragma once
#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {

/// moestro bench model --shape NAME -o PACK: a pack of random weights of a model's shape.
void add_model_bench(CLI::App& bench, CommandResult& result);

}  // namespace moestro::cli
