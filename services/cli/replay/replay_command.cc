#include "services/cli/replay/replay_command.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/output.h"
#include "services/cli/replay/replay_options.h"
#include "services/cli/replay/replay_report.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

constexpr double kShares[] = {0.10, 0.25, 0.50}, kRatios[] = {0.5, 1, 2, 4};

Result<tier::Routes> read_all(const std::vector<std::string>& traces) {
  MOESTRO_ASSIGN_OR_RETURN(tier::Routes routes, tier::read_routes(traces.front()));
  for (size_t i = 1; i < traces.size(); ++i) {
    MOESTRO_ASSIGN_OR_RETURN(const tier::Routes more, tier::read_routes(traces[i]));
    MOESTRO_RETURN_IF_ERROR(tier::append_routes(routes, more).with_context(traces[i]));
  }
  return routes;
}

Result<ReplayRow> run_row(const tier::Routes& routes, const ReplaySplit& split, const ReplayCase& what) {
  ReplayRow row;
  row.cache = what.cache, row.predict = what.predict, row.setup = what.setup;
  row.share = static_cast<double>(what.setup.slots) / (static_cast<double>(routes.layers) * routes.experts);
  row.link_ratio = copy_ratio_of(what.setup);
  MOESTRO_ASSIGN_OR_RETURN(row.report, run_case(routes, split, what));
  ReplayCase on_demand = what;
  on_demand.cache = "lru", on_demand.predict = "none";
  MOESTRO_ASSIGN_OR_RETURN(row.on_demand, run_case(routes, split, on_demand));
  row.belady = tier::replay_belady(routes, split.judged, what.setup);
  row.clairvoyant = tier::clairvoyant(routes, split.judged, what.setup);
  return row;
}

Result<std::vector<ReplayRow>> run_rows(const ReplayOptions& o) {
  MOESTRO_ASSIGN_OR_RETURN(const tier::Routes routes, read_all(o.traces));
  MOESTRO_ASSIGN_OR_RETURN(const ReplayCase what, read_case(o, routes));
  const ReplaySplit split = split_requests(routes.requests.size(), o.split);
  std::vector<ReplayCase> cases{what};
  if (o.sweep) {
    cases.clear();
    for (const double share : kShares)
      for (const double ratio : kRatios) {
        cases.push_back(what);
        cases.back().setup = with_copy_ratio(what.setup, ratio);
        cases.back().setup.slots = std::max(1, static_cast<int32_t>(share * routes.layers * routes.experts + 0.5));
      }
  }
  std::vector<ReplayRow> rows;
  for (const ReplayCase& c : cases) {
    MOESTRO_ASSIGN_OR_RETURN(ReplayRow row, run_row(routes, split, c));
    rows.push_back(std::move(row));
  }
  return rows;
}

void add_options(command_line::App& app, ReplayOptions& o) {
  app.add_option(
         "ROUTES", o.traces,
         "routing traces (--trace of a worker), plain or .zst; several of one model are taken one after the other")
      ->required();
  app.add_option("--slots", o.slots, "experts that the device holds, or a share of all as 25%")->capture_default_str();
  app.add_option("--vram", o.vram, "instead: memory for experts; nine tenths of it are used");
  app.add_option("--cache", o.cache,
                 "auto, lfru, lfu, lru, activation, weighted, random, or belady: on demand, knowing the future")
      ->capture_default_str();
  app.add_option("--predict", o.predict,
                 "auto, none, next-layer-all, popularity, request, recent, correlation, signature, echo, eamc, several "
                 "joined by +, or perfect")
      ->capture_default_str();
  app.add_option(
      "--hardware", o.hardware,
      "a file of configs/hardware; else one expert's computing takes --expert-ms and its copy --copy-ratio times that");
  app.add_option("--expert-bytes", o.expert_bytes, "of one expert, as it is moved");
  app.add_option("--attention-bytes", o.attention_bytes, "of a layer's dense weights; default: a quarter of an expert");
  app.add_option("--link", o.link, "bytes a second, as 12GB; default: the hardware's");
  app.add_option("--copy-ratio", o.copy_ratio, "one expert's copy / computing with it")
      ->check(command_line::Range(0.01, 1000.0))
      ->capture_default_str();
  app.add_option("--expert-ms", o.expert_ms, "computing with one expert, and with a layer's attention")
      ->check(command_line::Range(0.001, 1000.0))
      ->capture_default_str();
  app.add_option("--split", o.split,
                 "share of the requests that predictors and weights learn from; the others are judged")
      ->check(command_line::Range(0.0, 0.9))
      ->capture_default_str();
  app.add_option("--batch", o.batch, "requests that decode at once")
      ->check(command_line::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  app.add_option("--chunk", o.chunk, "tokens of a prompt in one step")
      ->check(command_line::Range(int64_t{1}, int64_t{65535}))
      ->capture_default_str();
  app.add_flag("!--no-keep", o.keep, "an expert is given up as soon as it was computed with: slots only buffer");
  app.add_flag("!--no-prefetch", o.prefetch, "nothing is copied before it is wanted");
  app.add_option("--restart", o.restart,
                 "each judged request as the first after a restart: an empty device, and of what was learned the "
                 "checkpoint of past requests, or nothing")
      ->check(command_line::IsMember({"checkpoint", "nothing"}));
  app.add_flag("--sweep", o.sweep,
               "a table: 10, 25 and 50 % of the experts, copies of 0.5 to 4 times one expert's computing");
  app.add_flag("--json", o.json, "machine-readable results");
  const char* const group = "What prefetching is held back by";
  app.add_option("--floor", o.how.floor, "probability under which nothing is prefetched")
      ->check(command_line::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--waste", o.how.waste_max,
                 "share of the bytes moved that prefetches may waste before the floor rises; 1: any; 0: 15 %, or 1.4 "
                 "times the bytes where slots hold less than a fifth")
      ->check(command_line::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--horizon", o.how.horizon, "layers ahead; 0: all")
      ->check(command_line::Range(0, 4096))
      ->capture_default_str()
      ->group(group);
  app.add_option("--choices", o.how.choices,
                 "victims named by the policy, of which the forecast takes one; 0: a quarter of the experts")
      ->check(command_line::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(group);
  app.add_flag("!--no-proximity", o.how.proximity, "nearer layers are not preferred")->group(group);
  app.add_flag("!--no-budget", o.how.budget, "also what the link cannot bring in time")->group(group);
  app.add_flag("!--no-guard", o.how.guard, "also in place of what is likelier to be used")->group(group);
  app.add_flag("!--no-calibrate", o.how.calibrate, "predictors are taken at their word")->group(group);
}

}  // namespace

void add_replay_command(command_line::App& app, CommandResult& result) {
  command_line::App* replay =
      app.add_subcommand("replay", "A routing trace against a cache and a predictor, on a virtual clock");
  auto o = std::make_shared<ReplayOptions>();
  add_options(*replay, *o);
  replay->callback([o, &result] {
    const auto rows = run_rows(*o);
    if (!rows.is_ok()) return fail(result, rows.status());
    std::string text;
    if (o->json) {
      nlohmann::json all = nlohmann::json::array();
      for (const ReplayRow& row : *rows) all.push_back(row_json(row));
      text = (o->sweep ? all : all.front()).dump(2) + "\n";
    } else {
      text = o->sweep ? table_text(*rows) : row_text(rows->front());
    }
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace moestro::cli
