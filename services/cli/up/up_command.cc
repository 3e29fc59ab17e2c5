#include "services/cli/up/up_command.h"

#include <unistd.h>

#include <memory>

#include "common/config/box_config.h"
#include "services/box/box_flags.h"
#include "services/box/https.h"
#include "services/cli/output.h"
#include "services/cli/up/arena_dir.h"
#include "services/cli/up/launch_plan.h"
#include "services/cli/up/run_dir.h"
#include "services/cli/up/runner.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

/// Whoever names a run directory has the state in it; else it lies where it survives a restart of the machine, which
/// the default run directory does not.
Status place_state(config::BoxConfig& box) {
  if (box.orchestrator.state != "default" || !box.run.dir.empty()) return Status::ok();
  const std::filesystem::path dir = default_state_dir(box.model.name);
  if (dir.empty()) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(make_state_dir(dir));
  box.orchestrator.state = "sqlite:" + (dir / "batches.db").string();
  return Status::ok();
}

Status run_box(config::BoxConfig box, const std::vector<WorkerPlace>& workers) {
  MOESTRO_RETURN_IF_ERROR(place_state(box));
  MOESTRO_ASSIGN_OR_RETURN(const shm::FileAccess access, shm::access_for_group(box.run.group));
  MOESTRO_ASSIGN_OR_RETURN(
      const RunDir run_dir,
      open_run_dir(box.run.dir.empty() ? default_run_dir(box.model.name) : std::filesystem::path(box.run.dir), access));
  std::optional<uint64_t> dram;
  if (box.store.dram) dram = box.store.dram->value;
  MOESTRO_ASSIGN_OR_RETURN(const ArenaDir arena, choose_arena_dir(box.store.arena_dir, run_dir.path, dram, access));
  RunnerConfig config;
  config.places = {run_dir.path, arena.path()};
  MOESTRO_RETURN_IF_ERROR(write_box_file(box, config.places));
  config.launches = plan_launches(box, config.places, workers, memory_nodes_to_choose());
  MOESTRO_ASSIGN_OR_RETURN(config.http, parse_host_port(box.orchestrator.http));
  MOESTRO_ASSIGN_OR_RETURN(config.https, box::serves_https(box));
  config.limits.drain =
      box.run.drain +
      std::chrono::seconds(5);  // it ends its requests by itself; the rest is for ending itself
  note("model " + box.model.name + " from " + box.model.pack + "; " + arena.explanation());
  for (size_t i = 0; i < workers.size(); ++i)
    if (!workers[i].note.empty()) note("worker-" + std::to_string(i) + " " + workers[i].note);
  note("logs in " + (run_dir.path / "logs").string());
  return run_programs(std::move(config));
}

void run_up(const box::BoxFlags& flags, CommandResult& result) {
  config::BoxConfig box;
  Status status = flags.read_file(box);
  if (!status.is_ok()) return fail(result, status);
  status = flags.read_flags(box);
  if (!status.is_ok()) return fail(result, status, kExitUsage);
  const auto workers = check_box(box, this_machine());
  status = workers.status();
  const bool usage = status.code() == Code::kInvalidArgument || status.code() == Code::kUnsupported;
  if (!status.is_ok()) return fail(result, status, usage ? kExitUsage : kExitFailed);
  status = run_box(box, *workers);
  if (!status.is_ok()) fail(result, status);
}

}  // namespace

void add_up_command(command_line::App& app, CommandResult& result) {
  command_line::App* command = app.add_subcommand(
      "up", "Start store, workers and orchestrator of one box; Ctrl-C drains and stops them");
  const auto flags = std::make_shared<box::BoxFlags>(*command);
  command->callback([flags, &result] { run_up(*flags, result); });
}

}  // namespace moestro::cli
