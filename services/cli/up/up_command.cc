#include "services/cli/up/up_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <thread>

#include "common/config/box_config.h"
#include "common/config/units.h"
#include "common/config/yaml_file.h"
#include "services/cli/output.h"
#include "services/cli/up/arena_dir.h"
#include "services/cli/up/launch_plan.h"
#include "services/cli/up/run_dir.h"
#include "services/cli/up/runner.h"

namespace moestro::cli {
namespace {

struct UpOptions {
  std::string file;
  std::map<std::string, std::vector<std::string>> texts;  ///< key -> what its flag was given
  std::map<std::string, bool> flags;
};

/// The file first, then the flags over it.
Status read_box(const UpOptions& options, config::Schema& schema, int& exit_code) {
  exit_code = kExitFailed;
  if (!options.file.empty()) MOESTRO_RETURN_IF_ERROR(config::load_yaml_file(options.file, schema));
  exit_code = kExitUsage;
  for (const config::Row& row : schema.rows()) {
    if (row.is_flag()) {
      const auto flag = options.flags.find(row.key);
      if (flag != options.flags.end() && flag->second)
        MOESTRO_RETURN_IF_ERROR(schema.set(row.key, "true", row.flag));
      continue;
    }
    const auto given = options.texts.find(row.key);
    if (given == options.texts.end() || given->second.empty()) continue;
    if (given->second.size() > 1)
      return unsupported(row.flag + " is given " + std::to_string(given->second.size()) + " times; " +
                         (row.flag == "--model" ? "this version serves one model" : "give it once"));
    MOESTRO_RETURN_IF_ERROR(schema.set(row.key, given->second.front(), row.flag));
  }
  return Status::ok();
}

Status run_box(const config::BoxConfig& box) {
  MOESTRO_ASSIGN_OR_RETURN(const RunDir run_dir,
                           open_run_dir(box.run.dir.empty() ? default_run_dir(box.model.name)
                                                            : std::filesystem::path(box.run.dir)));
  std::optional<uint64_t> dram;
  if (box.store.dram) dram = box.store.dram->value;
  MOESTRO_ASSIGN_OR_RETURN(const ArenaDir arena, choose_arena_dir(box.store.arena_dir, run_dir.path, dram));
  RunnerConfig config;
  config.places = {run_dir.path, arena.path()};
  config.launches = plan_launches(box, config.places, std::max(1u, std::thread::hardware_concurrency()));
  MOESTRO_ASSIGN_OR_RETURN(config.http, parse_host_port(box.orchestrator.http));
  config.limits.drain =
      box.run.drain +
      std::chrono::seconds(5);  // it ends its requests by itself; the rest is for ending itself
  note("model " + box.model.name + " from " + box.model.pack + "; " + arena.explanation());
  note("logs in " + (run_dir.path / "logs").string());
  return run_programs(std::move(config));
}

void run_up(const UpOptions& options, CommandResult& result) {
  config::BoxConfig box;
  config::Schema schema = config::box_schema(box);
  int exit_code = kExitFailed;
  Status status = read_box(options, schema, exit_code);
  if (!status.is_ok()) return fail(result, status, exit_code);
  status = check_box(box);
  if (!status.is_ok())
    return fail(result, status, status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailed);
  status = run_box(box);
  if (!status.is_ok()) fail(result, status);
}

}  // namespace

void add_up_command(CLI::App& app, CommandResult& result) {
  CLI::App* command = app.add_subcommand(
      "up", "Start store, workers and orchestrator of one box; Ctrl-C drains and stops them");
  auto options = std::make_shared<UpOptions>();
  command->add_option("-c,--config", options->file,
                      "YAML file; flags outrank it (keys: moestro config --reference)");
  config::BoxConfig defaults;
  const config::Schema schema = config::box_schema(defaults);
  for (const config::Row& row : schema.rows()) {
    if (row.flag.empty()) continue;
    if (row.is_flag()) {
      command->add_flag(row.flag, options->flags[row.key], row.help);
      continue;
    }
    const std::string preset = row.default_text.empty() ? "" : " [" + row.default_text + "]";
    command->add_option(row.flag, options->texts[row.key], row.help + preset)
        ->expected(1)
        ->take_all()
        ->type_name("");
  }
  command->callback([options, &result] { run_up(*options, result); });
}

}  // namespace moestro::cli
