#include "services/cli/doctor/doctor_command.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/doctor/arenas.h"
#include "services/cli/doctor/findings.h"
#include "services/cli/doctor/stores.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Options {
  std::string pack = ".";
  std::vector<std::string> arena_dirs, stores;
  bool clean = false, json = false;
};

std::vector<fs::path> arena_roots() {
  std::vector<fs::path> roots{"/dev/shm", "/tmp"};
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && runtime[0] == '/')
    roots.emplace_back(runtime);
  return roots;
}

void print_table(const std::vector<Finding>& findings, const std::vector<Arena>& arenas) {
  for (const Finding& finding : findings) {
    std::printf("%-8s %-14s %s\n", std::string(verdict_name(finding.verdict)).c_str(), finding.topic.c_str(),
                one_line(finding.found).c_str());
    if (!finding.mend.empty()) std::printf("%-8s %-14s mend: %s\n", "", "", one_line(finding.mend).c_str());
  }
  for (const Arena& arena : arenas) {
    std::printf("%-8s %-14s %s, %s, %s\n", "info", "arena", one_line(arena.dir.string()).c_str(),
                config::readable_size(arena.bytes).c_str(), arena.held ? "in use" : "stale");
    if (!arena.held) std::printf("%-8s %-14s mend: moestro doctor --clean\n", "", "");
  }
}

void print_json(const std::vector<Finding>& findings, const std::vector<Arena>& arenas,
                const std::vector<std::string>& removed) {
  json report{{"findings", json::array()}, {"arenas", json::array()}, {"removed", removed}};
  for (const Finding& finding : findings)
    report["findings"].push_back({{"topic", finding.topic},
                                  {"verdict", verdict_name(finding.verdict)},
                                  {"found", finding.found},
                                  {"mend", finding.mend}});
  for (const Arena& arena : arenas)
    report["arenas"].push_back({{"dir", arena.dir.string()}, {"bytes", arena.bytes}, {"held", arena.held}});
  std::printf("%s\n", json_text(report, 2).c_str());
}

/// Removes the stale ones from `arenas` and the disk. The first error, after all were tried.
Status clean(std::vector<Arena>& arenas, std::vector<std::string>& removed) {
  Status first;
  std::erase_if(arenas, [&](const Arena& arena) {
    if (arena.held) return false;
    const Status status = remove_arena(arena);
    if (!status.is_ok()) {
      if (first.is_ok()) first = status;
      return false;
    }
    removed.push_back(arena.dir.string());
    note("removed stale arena " + arena.dir.string() + ", " + config::readable_size(arena.bytes));
    return true;
  });
  return first;
}

void run(const Options& options, CommandResult& result) {
  std::vector<Finding> findings = judge(look_at_machine(options.pack));
  // What a store that runs got counts there, not what a new one would get here.
  if (!options.stores.empty())
    std::erase_if(findings, [](const Finding& f) {
      return f.topic == "huge pages" || f.topic == "locked memory" || f.topic == "/dev/shm";
    });
  std::ranges::move(judge_stores(arena_roots(), {options.stores.begin(), options.stores.end()}),
                    std::back_inserter(findings));
  std::vector<Arena> arenas =
      find_arenas(arena_roots(), {options.arena_dirs.begin(), options.arena_dirs.end()});
  std::vector<std::string> removed;
  Status status;
  if (options.clean) status = clean(arenas, removed);
  options.json ? print_json(findings, arenas, removed) : print_table(findings, arenas);
  if (!status.is_ok()) return fail(result, status);
  const bool missing = std::any_of(findings.begin(), findings.end(),
                                   [](const Finding& f) { return f.verdict == Verdict::kMissing; });
  if (missing) result.exit_code = kExitFailed;
}

}  // namespace

void add_doctor_command(command_line::App& app, CommandResult& result) {
  command_line::App* command =
      app.add_subcommand("doctor", "Check this machine: what is missing or slow, and the command that fixes it");
  auto options = std::make_shared<Options>();
  command->add_option("--pack", options->pack, "Directory in which to test direct reads (O_DIRECT): that of your packs")
      ->capture_default_str()
      ->type_name("DIR");
  command->add_option("--arena-dir", options->arena_dirs, "Look for a stale arena in this directory too")
      ->type_name("DIR");
  command
      ->add_option("--store", options->stores,
                   "Report the memory pages of the store with this run directory, instead of those that a new store "
                   "would get. Stores of `moestro up` are found without this")
      ->type_name("DIR");
  command->add_flag("--clean", options->clean, "Remove arenas that no store uses");
  command->add_flag("--json", options->json, "Print the findings as JSON");
  command->callback([options, &result] { run(*options, result); });
}

}  // namespace moestro::cli
