#pragma once
// `moestro bench serve`.

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {

void add_serve_bench(CLI::App& bench, CommandResult& result);

}  // namespace moestro::cli
