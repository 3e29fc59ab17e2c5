#include "services/cli/bench/store/store_command.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "services/cli/bench/store/store_report.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

/// "1GiB" for a number of bytes; CLI11 prints what is wrong with it.
command_line::Option* add_size(command_line::App& app, const char* names, const char* help,
                               std::function<void(uint64_t)> take) {
  return app.add_option_function<std::string>(
      names,
      [take = std::move(take)](const std::string& text) {
        const auto size = config::parse_size(text);
        if (!size.is_ok()) throw command_line::ValidationError(size.status().message());
        if (*size == 0 || *size > (uint64_t{1} << 46))
          throw command_line::ValidationError(text + " is not within 1 and 64TiB");
        take(*size);
      },
      help);
}

}  // namespace

void add_store_bench(command_line::App& bench, CommandResult& result) {
  command_line::App* store = bench.add_subcommand("store",
                                                  "Measure fetches and pins of a store, compared with the bare drive "
                                                  "and with a mapping of the same files. Starts its "
                                                  "own store");
  auto o = std::make_shared<StoreBenchOptions>();
  auto json = std::make_shared<bool>(false);
  store->add_option("--pack", o->pack, "Pack: a directory made by moestro pack")->required()->type_name("PACK");
  store->add_option("--workers", o->workers, "Worker processes whose memory is counted")
      ->check(command_line::Range(int64_t{2}, int64_t{64}))
      ->capture_default_str();
  store->add_option("--rounds", o->rounds, "Rounds. Each result is their median")
      ->check(command_line::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  store->add_option("--depth", o->depth, "Reads in flight of the bare io_uring that fetches are compared with")
      ->check(command_line::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  add_size(*store, "--fetch", "Bytes to fetch at once in a round. Default: 1GiB, at most a quarter of the experts",
           [o](uint64_t n) { o->fetch_bytes = static_cast<int64_t>(n); });
  add_size(*store, "--dram",
           "Size of the arena. Default: for fetches half of the experts, for workers what the store chooses",
           [o](uint64_t n) { o->dram = n; });
  store->add_option("--arena-dir", o->arena_dir, "Directory for the arena. Default: as `moestro up` chooses")
      ->type_name("DIR");
  store
      ->add_option("--only", o->only, "reads: only fetches and pins. processes: only workers and memory. Default: both")
      ->check(command_line::IsMember({"reads", "processes"}));
  store->add_flag("--json", *json, "Print a list of rows {what, value, unit, baseline, ratio, aim, ...} as JSON");
  store->callback([o, json, &result] {
    std::unique_ptr<Progress> progress;
    const auto begin = std::chrono::steady_clock::now();
    const auto report = bench_store(*o, [&](uint64_t done, uint64_t total, const std::string& what) {
      if (!progress) progress = std::make_unique<Progress>("bench store", total);
      progress->update(done, what, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    });
    progress.reset();
    if (!report.is_ok()) return fail(result, report.status());
    const std::string text = *json ? json_text(store_report_json(*report), 1) + "\n" : store_report_text(*report);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace moestro::cli
