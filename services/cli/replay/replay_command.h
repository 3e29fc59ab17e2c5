#pragma once
// moestro replay ROUTES... : what a cache and a predictor would have done with recorded requests on given hardware.

#include "services/cli/common/command.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
void add_replay_command(command_line::App& app, CommandResult& result);
}
