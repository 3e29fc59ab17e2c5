#pragma once
// moestro replay ROUTES... : what a cache and a predictor would have done with recorded requests, on hardware that is not here.

#include "services/cli/command.h"

namespace CLI {
class App;
}

namespace moestro::cli {
void add_replay_command(CLI::App& app, CommandResult& result);
}
