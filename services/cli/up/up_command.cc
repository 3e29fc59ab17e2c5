#include "services/cli/up/up_command.h"

#include <unistd.h>

#include <memory>

#include "common/config/box_config.h"
#include "services/box/box_flags.h"
#include "services/box/https.h"
#include "services/cli/common/output.h"
#include "services/cli/common/run_dir.h"
#include "services/cli/plan/box_plan.h"
#include "services/cli/plan/schedule_report.h"
#include "services/cli/up/arena_dir.h"
#include "services/cli/up/launch_plan.h"
#include "services/cli/up/preflight.h"
#include "services/cli/up/runner.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

/// With --run-dir the state is in that directory. Else it lies where it survives a restart of the machine, which the
/// default run directory does not: in a directory that this makes, and names in `box`.
Status place_state(config::BoxConfig& box) {
  if (box.orchestrator.state != "default" || !box.run.dir.empty()) return Status::ok();
  const fs::path dir = default_state_dir(box.model.name);
  if (dir.empty()) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(make_state_dir(dir));
  box.orchestrator.state = "sqlite:" + (dir / "batches.db").string();
  return Status::ok();
}

/// What only one program can have.
Status check_claims(config::BoxConfig& box, const config::HostPort& http, const fs::path& run_dir) {
  MOESTRO_RETURN_IF_ERROR(check_port(http));
  MOESTRO_RETURN_IF_ERROR(place_state(box));
  return check_state(box, run_dir);
}

/// The box's run directory, made once nothing stands against a start. In one that is there, programs of an earlier run
/// may still end: what they hold is looked at after they have.
Result<RunDir> claim_run_dir(config::BoxConfig& box, const config::HostPort& http, const shm::FileAccess& access) {
  const fs::path path = box.run.dir.empty() ? default_run_dir(box.model.name) : fs::path(box.run.dir);
  std::error_code error;
  if (!fs::exists(path, error)) MOESTRO_RETURN_IF_ERROR(check_claims(box, http, path));
  MOESTRO_ASSIGN_OR_RETURN(RunDir run_dir, open_run_dir(path, access));
  MOESTRO_RETURN_IF_ERROR(check_claims(box, http, run_dir.path));
  return run_dir;
}

/// Before the orchestrator starts, which reads it.
Status leave_forecast(const fs::path& run_dir, const std::optional<orchestrator::Forecast>& forecast) {
  orchestrator::remove_forecast(run_dir);
  return forecast ? orchestrator::write_forecast(run_dir, *forecast) : Status::ok();
}

std::string forecast_text(const orchestrator::Forecast& f) {
  const auto phase = [](const orchestrator::Forecast::Phase& p) {
    return rate_text(p.tokens_per_s) + " tokens/s (bound by " + p.bound + ")";
  };
  return "forecast for " + counted(static_cast<uint64_t>(f.sequences), "sequence") + " at once, of " +
         std::to_string(f.prompt) + " + " + std::to_string(f.generate) + " tokens: prompts " + phase(f.prompts) +
         ", decoding " + phase(f.decoding);
}

Status run_box(config::BoxConfig box, const std::vector<WorkerPlace>& workers,
               const std::optional<orchestrator::Forecast>& forecast) {
  MOESTRO_RETURN_IF_ERROR(check_files(box));
  MOESTRO_ASSIGN_OR_RETURN(const config::HostPort http, config::parse_listen_address(box.orchestrator.http));
  MOESTRO_ASSIGN_OR_RETURN(const shm::FileAccess access, shm::access_for_group(box.run.group));
  MOESTRO_ASSIGN_OR_RETURN(const RunDir run_dir, claim_run_dir(box, http, access));
  std::optional<uint64_t> dram;
  if (box.store.dram) dram = box.store.dram->value;
  MOESTRO_ASSIGN_OR_RETURN(const ArenaDir arena, choose_arena_dir(box.store.arena_dir, run_dir.path, dram, access));
  RunnerConfig config;
  config.places = {run_dir.path, arena.path()};
  MOESTRO_RETURN_IF_ERROR(write_box_file(box, config.places));
  MOESTRO_RETURN_IF_ERROR(leave_forecast(run_dir.path, forecast));
  config.launches = plan_launches(box, config.places, workers, memory_nodes_to_choose());
  config.http = http;
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

Status run(const box::BoxFlags& flags) {
  config::BoxConfig box;
  if (const Status read = flags.read(box); !read.is_ok()) return invalid_argument(read.message());
  if (box.orchestrator.http.starts_with(':'))
    note("--http " + box.orchestrator.http + " listens on 127.0.0.1 alone; for every address of this machine write " +
         "0.0.0.0" + box.orchestrator.http);
  if (const std::string planned = plan_steps(box); !planned.empty()) note(planned);
  if (const std::string planned = plan_schedule(box); !planned.empty()) note(planned);
  const auto forecast = forecast_box(box);
  if (forecast) note(forecast_text(*forecast));
  MOESTRO_ASSIGN_OR_RETURN(const auto workers, check_box(box, this_machine()));
  return run_box(box, workers, forecast);
}

/// What another start ends with as well is a matter of usage.
void run_up(const box::BoxFlags& flags, CommandResult& result) {
  const Status status = run(flags);
  const bool usage = status.code() == Code::kInvalidArgument || status.code() == Code::kUnsupported;
  if (!status.is_ok()) fail(result, status, usage ? kExitUsage : kExitFailed);
}

}  // namespace

void add_up_command(command_line::App& app, CommandResult& result) {
  command_line::App* command = app.add_subcommand(
      "up",
      "Serve a model: start the store, the workers and the orchestrator on this machine. Ctrl-C finishes the "
      "requests in flight and stops them");
  const auto flags = std::make_shared<box::BoxFlags>(*command);
  command->strays_are_for("--model");
  command->footer(
      "Examples:\n"
      "  moestro up --model packs/qwen3 --dram 24GiB\n"
      "  moestro up --model packs/qwen3 --device cuda --http 0.0.0.0:8080 --api-keys keys\n"
      "  moestro up -c box.yaml");
  command->callback([flags, &result] { run_up(*flags, result); });
}

}  // namespace moestro::cli
