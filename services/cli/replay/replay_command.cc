#include "services/cli/replay/replay_command.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/tier/replay_order.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/replay/replay_options.h"
#include "services/cli/replay/replay_report.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

constexpr double kShares[] = {0.10, 0.25, 0.50}, kRatios[] = {0.5, 1, 2, 4};

Result<tier::Routes> read_one(const std::string& trace) {
  std::error_code error;
  if (!std::filesystem::exists(trace, error))
    return not_found("there is no file " + trace +
                     "; record a routing trace with: moestro up --model PACK --trace routes.jsonl");
  return tier::read_routes(trace);
}

Result<tier::Routes> read_all(const std::vector<std::string>& traces) {
  MOESTRO_ASSIGN_OR_RETURN(tier::Routes routes, read_one(traces.front()));
  for (size_t i = 1; i < traces.size(); ++i) {
    MOESTRO_ASSIGN_OR_RETURN(const tier::Routes more, read_one(traces[i]));
    MOESTRO_RETURN_IF_ERROR(tier::append_routes(routes, more).with_context(traces[i]));
  }
  return routes;
}

Result<ReplayRow> run_row(const tier::Routes& routes, const ReplaySplit& split, const ReplayCase& what) {
  ReplayRow row;
  row.cache = what.cache, row.predict = what.predict, row.setup = what.setup;
  row.host = what.host, row.cpu = what.cpu;
  ReplayCase full_only = what;  // with the same memory
  if (what.setup.mixed) {
    full_only.setup.slots = what.full_slots;
    full_only.setup.mixed.reset(), full_only.setup.low_slots = 0, full_only.setup.low_bytes = 0;
    MOESTRO_ASSIGN_OR_RETURN(row.full_only, run_case(routes, split, full_only));
  }
  row.share = static_cast<double>(full_only.setup.slots) / (static_cast<double>(routes.layers) * routes.experts);
  row.link_ratio = copy_ratio_of(what.setup);
  MOESTRO_ASSIGN_OR_RETURN(row.report, run_case(routes, split, what));
  if (what.start == ReplayCase::Start::kOnce) row.first_token = first_token_times(split, row.report);
  row.queued = !split.came.empty();
  ReplayCase on_demand = what;
  on_demand.cache = "lru", on_demand.predict = "none";
  if (on_demand.host) on_demand.host->cache = "lru";
  MOESTRO_ASSIGN_OR_RETURN(row.on_demand, run_case(routes, split, on_demand));
  row.belady = tier::replay_belady(routes, split.judged, full_only.setup);
  row.clairvoyant = tier::clairvoyant(routes, split.judged, full_only.setup);
  return row;
}

/// Mixes the judged requests, which a trace may have one domain after another, and lets them join in the order that is
/// asked for.
Status queue_up(const ReplayOptions& o, const tier::Routes& routes, ReplaySplit& split) {
  if (o.order.empty()) return Status::ok();
  if (o.batch < 2) return invalid_argument("--order needs --batch 2 or more: a request that runs alone joins nothing");
  if (!o.restart.empty()) return invalid_argument("--order and --restart exclude each other");
  split.came = split.judged = tier::mixed(split.judged);
  split.waiting = static_cast<size_t>(o.waiting);
  if (o.order == "first-come") return Status::ok();
  const tier::OverlapOrder order{static_cast<int32_t>(o.batch), split.waiting, static_cast<size_t>(o.passes)};
  auto joined = tier::join_by_overlap(routes, split.learned, split.came, order);
  if (!joined.is_ok()) return joined.status().with_context("--order overlap");
  split.judged = std::move(*joined);
  return Status::ok();
}

Result<std::vector<ReplayRow>> run_rows(const ReplayOptions& o) {
  MOESTRO_ASSIGN_OR_RETURN(const tier::Routes routes, read_all(o.traces));
  MOESTRO_ASSIGN_OR_RETURN(const ReplayCase what, read_case(o, routes));
  ReplaySplit split = split_requests(routes.requests.size(), o.split);
  MOESTRO_RETURN_IF_ERROR(queue_up(o, routes, split));
  std::vector<ReplayCase> cases{what};
  if (o.sweep) {
    cases.clear();
    for (const double share : kShares)
      for (const double ratio : kRatios) {
        cases.push_back(what);
        cases.back().setup = with_copy_ratio(what.setup, ratio);
        const auto experts = static_cast<int32_t>(share * routes.layers * routes.experts + 0.5);
        cases.back().setup.slots = std::max(what.cpu ? routes.top_k : 1, experts);
        MOESTRO_RETURN_IF_ERROR(share_slots(cases.back(), routes).with_context("--mixed"));
        if (what.cpu) set_host_from_setup(cases.back());
      }
  }
  std::vector<ReplayRow> rows;
  for (const ReplayCase& c : cases) {
    MOESTRO_ASSIGN_OR_RETURN(ReplayRow row, run_row(routes, split, c));
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The routes, and what holds their experts.
void add_tier_options(command_line::App& app, ReplayOptions& o) {
  app.add_option("ROUTES", o.traces,
                 "Routing traces, which `moestro up --trace routes.jsonl` records; plain or .zst. Several traces of "
                 "one model are "
                 "replayed one after the other")
      ->required();
  app.add_option("--slots", o.slots,
                 "Experts that the device holds, or their share of all experts. Default: 25%, or with --drive no "
                 "device: the CPU computes experts from host memory")
      ->type_name("N|N%");
  app.add_option("--vram", o.vram, "Instead of --slots: device memory for experts. Nine tenths of it are used")
      ->type_name("SIZE");
  app.add_option(
         "--cache", o.cache,
         "Cache policy: auto, interval, lfru, lfu, lru, activation, weighted or random. belady: on demand, knowing the "
         "future")
      ->capture_default_str()
      ->type_name("POLICY");
  app.add_option(
         "--predict", o.predict,
         "Predictor: auto, none, next-layer-all, popularity, request, recent, correlation, signature, echo, eamc, or "
         "several joined by +. perfect: knowing the future")
      ->capture_default_str()
      ->type_name("PREDICTOR");
  app.add_option("--mixed", o.mixed,
                 "Low copies of experts, as --mixed of moestro up, LOW[,t1=SCORE][,t2=SCORE][,share=SHARE]: what they "
                 "are worth with the same memory. Full copies are taken to be bf16. Needs a trace with gate weights")
      ->type_name("LOW");
}

/// What an expert costs.
void add_cost_options(command_line::App& app, ReplayOptions& o) {
  app.add_option("--hardware", o.hardware,
                 "Description of a device, a file as in configs/hardware. Without it, computing one expert takes "
                 "--expert-ms and "
                 "copying it --copy-ratio times that")
      ->type_name("FILE");
  app.add_option("--expert-bytes", o.expert_bytes, "Size of one expert, as it is copied")->type_name("SIZE");
  app.add_option("--attention-bytes", o.attention_bytes,
                 "Size of a layer's dense weights. Default: a quarter of an expert")
      ->type_name("SIZE");
  app.add_option("--link", o.link, "Bytes per second of the link, such as 12GB. Default: the hardware's")
      ->type_name("RATE");
  app.add_option("--copy-ratio", o.copy_ratio, "Time to copy one expert, divided by the time to compute it")
      ->check(command_line::Range(0.01, 1000.0))
      ->capture_default_str();
  app.add_option("--cpu-ratio", o.cpu_ratio,
                 "The CPU computes missing experts of decoding steps where that is faster than copying them: its time "
                 "for an expert, divided by the device's. 0: the device computes all")
      ->check(command_line::Range(0.0, 1000.0))
      ->capture_default_str();
  app.add_option("--expert-ms", o.expert_ms, "Milliseconds to compute one expert, and one layer's attention")
      ->check(command_line::Range(0.001, 1000.0))
      ->capture_default_str();
}

void add_host_options(command_line::App& app, ReplayOptions& o) {
  app.add_option("--drive", o.drive,
                 "Drive that experts are read from into host memory, such as 2GiB/s,latency=100us. Needs --host and "
                 "--expert-bytes")
      ->type_name("RATE[,latency=T]");
  app.add_option("--host", o.host,
                 "With --drive: host memory for experts, or the share of all experts that it holds, such as 50%. "
                 "Without --drive it holds all")
      ->type_name("SIZE|N%");
  app.add_option("--host-cache", o.host_cache,
                 "With --drive: cache policy of host memory: interval, lfru, lfu, lru or random. Default: interval")
      ->type_name("POLICY");
}

/// Which requests run, and how.
void add_request_options(command_line::App& app, ReplayOptions& o) {
  app.add_option("--split", o.split,
                 "Share of the requests that predictors and policies learn from. The others are measured")
      ->check(command_line::Range(0.0, 0.9))
      ->capture_default_str();
  app.add_option("--batch", o.batch, "Requests that decode at once")
      ->check(command_line::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  auto* const order =
      app.add_option("--order", o.order,
                     "With --batch: requests come in mixed order and wait. They join as they come, or by the experts "
                     "that they are likely to share with those that run. overlap needs a trace with \"x\", the "
                     "prompts' tokens, as models/demo/routes has it; moestro up does not record them")
          ->check(command_line::IsMember({"first-come", "overlap"}));
  app.add_option("--waiting", o.waiting, "With --order: requests that wait at once. One more comes when one joins")
      ->check(command_line::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str()
      ->needs(order);
  app.add_option("--passes", o.passes, "With --order overlap: later requests that may join before one that waits")
      ->check(command_line::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str()
      ->needs(order);
  app.add_option("--chunk", o.chunk, "Prompt tokens in one step")
      ->check(command_line::Range(int64_t{1}, int64_t{65535}))
      ->capture_default_str();
  app.add_flag("!--no-keep", o.keep, "Drop each expert as soon as it has been computed. Slots are only buffers");
  app.add_flag("!--no-prefetch", o.prefetch, "Copy and read nothing before it is needed");
  app.add_option(
         "--restart", o.restart,
         "Treat each measured request as the first after a restart. The device is empty, and the predictors know "
         "the checkpoint of past requests, or nothing")
      ->check(command_line::IsMember({"checkpoint", "nothing"}));
  app.add_flag(
      "--sweep", o.sweep,
      "Print a table: 10, 25 and 50 % of the experts, and copies that take 0.5 to 4 times as long as computing. With "
      "--drive: of host memory and reads, for a CPU only");
  app.add_flag("--json", o.json, "Print the results as JSON");
}

void add_prefetch_limits(command_line::App& app, ReplayOptions& o) {
  const char* const group = "Limits of prefetching";
  app.add_option("--floor", o.how.floor, "Least probability for a prefetch")
      ->check(command_line::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--waste", o.how.waste_max,
         "Share of the copied bytes that prefetches may waste before the floor rises. 1: any. 0: 13 %, or 28 % if "
         "slots hold less than a fifth of the experts")
      ->check(command_line::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--horizon", o.how.horizon, "Layers to look ahead. 0: all")
      ->check(command_line::Range(0, 4096))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--choices", o.how.choices,
         "Experts that the policy offers for eviction, of which the forecast takes one. 0: a quarter of the experts")
      ->check(command_line::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(group);
  app.add_flag("!--no-proximity", o.how.proximity, "Do not prefer nearer layers")->group(group);
  app.add_flag("!--no-budget", o.how.budget, "Prefetch also what the link cannot copy in time")->group(group);
  app.add_flag("!--no-guard", o.how.guard, "Let prefetches evict experts that are more likely to be used")
      ->group(group);
  app.add_flag("!--no-patience", o.how.patience, "Let prefetches evict experts earlier than is necessary")
      ->group(group);
  app.add_flag("!--no-thrift", o.how.thrift, "Let prefetches evict experts where their layer would not wait")
      ->group(group);
  app.add_flag("!--no-calibrate", o.how.calibrate, "Do not calibrate the predictors")->group(group);
}

}  // namespace

void add_replay_command(command_line::App& app, CommandResult& result) {
  command_line::App* replay =
      app.add_subcommand("replay", "Replay a routing trace against a cache policy and a predictor, on a virtual clock");
  auto o = std::make_shared<ReplayOptions>();
  add_tier_options(*replay, *o);
  add_cost_options(*replay, *o);
  add_host_options(*replay, *o);
  add_request_options(*replay, *o);
  add_prefetch_limits(*replay, *o);
  replay->footer(
      "Example:\n"
      "  moestro up --model PACK --trace routes.jsonl      # then send requests, and stop it with Ctrl-C\n"
      "  moestro replay routes.jsonl --slots 25% --predict auto\n"
      "  moestro replay routes.jsonl --expert-bytes 16MiB --drive 2GiB/s,latency=100us --host 50%      # a CPU");
  replay->callback([o, &result] {
    const auto rows = run_rows(*o);
    if (!rows.is_ok()) return fail(result, rows.status());
    std::string text;
    if (o->json) {
      nlohmann::json all = nlohmann::json::array();
      for (const ReplayRow& row : *rows) all.push_back(row_json(row));
      text = json_text(o->sweep ? all : all.front(), 2) + "\n";
    } else {
      text = o->sweep ? table_text(*rows) : row_text(rows->front());
    }
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace moestro::cli
