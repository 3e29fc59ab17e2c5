// moestro: the command line of Moestro. Each subcommand lives in a folder or file of its own; this one
// registers them.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "services/cli/batch/batch_command.h"
#include "services/cli/bench/bench_command.h"
#include "services/cli/client/client_commands.h"
#include "services/cli/command.h"
#include "services/cli/config_command.h"
#include "services/cli/doctor/doctor_command.h"
#include "services/cli/health_command.h"
#include "services/cli/output.h"
#include "services/cli/pack/inspect_command.h"
#include "services/cli/pack/pack_command.h"
#include "services/cli/replay/replay_command.h"
#include "services/cli/store/store_command.h"
#include "services/cli/top/top_command.h"
#include "services/cli/up/up_command.h"

int main(int argc, char** argv) {
  using namespace moestro::cli;
  CLI::App app("Moestro serves Mixture-of-Experts language models that do not fit in memory.", "moestro");
  app.set_version_flag("--version", std::string("moestro ") + MOESTRO_VERSION);
  app.require_subcommand(1);
  CommandResult result;
  add_pack_command(app, result);
  add_inspect_command(app, result);
  add_up_command(app, result);
  add_batch_command(app, result);
  add_complete_command(app, result);
  add_chat_command(app, result);
  add_doctor_command(app, result);
  add_health_command(app, result);
  add_config_command(app, result);
  add_bench_command(app, result);
  add_store_command(app, result);
  add_top_command(app, result);
  add_replay_command(app, result);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> strangers = app.remaining(true);
    const bool no_command = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !strangers.empty();
    const std::string what = no_command ? "unknown command '" + strangers.front() + "'" : error.what();
    std::fprintf(stderr, "moestro: %s (see moestro --help)\n", one_line(what).c_str());
    return kExitUsage;
  }
  return result.exit_code;
}
