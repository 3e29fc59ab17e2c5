// moestro: the command line of Moestro. Each subcommand lives in a folder or file of its own; this one
// registers them.

#include <string>

#include "services/cli/batch/batch_command.h"
#include "services/cli/bench_command.h"
#include "services/cli/client/client_commands.h"
#include "services/cli/common/command.h"
#include "services/cli/config_command.h"
#include "services/cli/doctor/doctor_command.h"
#include "services/cli/health_command.h"
#include "services/cli/pack/inspect_command.h"
#include "services/cli/pack/pack_command.h"
#include "services/cli/plan/plan_command.h"
#include "services/cli/replay/replay_command.h"
#include "services/cli/store/store_command.h"
#include "services/cli/timeline/timeline_command.h"
#include "services/cli/top/top_command.h"
#include "services/cli/up/up_command.h"
#include "services/command_line/command_line.h"

int main(int argc, char** argv) {
  using namespace moestro::cli;
  moestro::command_line::App app("Moestro serves Mixture-of-Experts language models that are larger than GPU memory.",
                                 "moestro");
  app.set_version_flag("--version", std::string("moestro ") + MOESTRO_VERSION);
  app.require_subcommand(1);
  // The help lists them in this order.
  CommandResult result;
  add_pack_command(app, result);
  add_inspect_command(app, result);
  add_plan_command(app, result);
  app.group_commands({"pack", "inspect", "plan"}, "Prepare a model");
  add_doctor_command(app, result);
  add_up_command(app, result);
  add_top_command(app, result);
  add_store_command(app, result);
  add_health_command(app, result);
  add_config_command(app, result);
  app.group_commands({"doctor", "up", "top", "store", "health", "config"}, "Run a server");
  add_complete_command(app, result);
  add_chat_command(app, result);
  add_batch_command(app, result);
  app.group_commands({"complete", "chat", "batch"}, "Use a server");
  add_bench_command(app, result);
  add_replay_command(app, result);
  add_timeline_command(app, result);
  app.group_commands({"bench", "replay", "timeline"}, "Measure");
  if (const auto code = moestro::command_line::parse_program_line(app, argc, argv)) return *code;
  return result.exit_code;
}
