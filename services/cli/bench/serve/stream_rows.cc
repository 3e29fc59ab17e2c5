// Many streams and idle connections on one orchestrator.

#include <sys/resource.h>

#include <cstdio>
#include <fstream>

#include "services/cli/bench/serve/table.h"

namespace moestro::cli {
namespace {

constexpr int64_t kStreams = 500, kIdle = 2000;
constexpr rlim_t kFilesBeside = 64;
constexpr double kMemoryMax = 300;

/// The most that was resident at once, in bytes; 0: the process is gone.
uint64_t peak_memory(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    unsigned long kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %lu", &kib) == 1) return uint64_t{kib} * 1024;
  }
  return 0;
}

}  // namespace

Status add_stream_rows(const RowContext& context, std::vector<BenchRow>& rows) {
  const std::string name =
      std::to_string(kStreams) + " streams and " + std::to_string(kIdle) + " idle connections: ";
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max < kStreams + kIdle + kFilesBeside) {
    rows.push_back(at_most(name + "errors", "", 0, 0, ""));
    rows.back().missing = "a process may open " + std::to_string(files.rlim_max) + " files; raise ulimit -Hn";
    return Status::ok();
  }
  ServeBenchOptions o = context.options;
  o.queue_max = 2 * kStreams;
  MOESTRO_ASSIGN_OR_RETURN(const auto box, start_box(box_of(o)));
  MOESTRO_ASSIGN_OR_RETURN(const Served served, ask_served(url_of(*box), ""));
  LoadOptions load = load_options(o, served);
  load.idle_connections = kIdle;
  MOESTRO_RETURN_IF_ERROR(warm_up(load, 8, served.limits));
  const auto arrivals = poisson_arrivals({.count = kStreams, .prompt = {8, 16}, .output = {8, 8}, .seed = o.seed});
  MOESTRO_ASSIGN_OR_RETURN(const LoadRun run, row_load(context, load, arrivals, "many streams"));
  const LoadSummary s = summarise(run, {});
  std::string how = std::to_string(s.done) + " of " + std::to_string(kStreams) +
                    " streams of 8 tokens to their ends, " + std::to_string(run.in_flight_max) + " at once; " +
                    std::to_string(run.idle_open) + " connections opened, " + std::to_string(run.idle_lost) +
                    " lost; each asks for /health now and then";
  for (const auto& [kind, failure] : run.failures)
    how += "; " + std::to_string(failure.count) + " " + kind + ": " + failure.example;
  rows.push_back(
      at_most(name + "errors", "", static_cast<double>(s.failed + s.refused + s.other_length + run.idle_lost), 0, how));
  rows.push_back(at_most(name + "memory of the orchestrator, at most", "MB",
                         static_cast<double>(peak_memory(box->orchestrator_pid())) * 1e-6, kMemoryMax, "VmHWM"));
  return Status::ok();
}

}  // namespace moestro::cli
