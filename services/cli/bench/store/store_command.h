#pragma once
// `moestro bench store`.

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {

void add_store_bench(CLI::App& bench, CommandResult& result);

}  // namespace moestro::cli
