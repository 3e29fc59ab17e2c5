#include "services/cli/bench/serve/serve_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/model/model_spec.h"
#include "services/cli/bench/serve/completion_json.h"
#include "services/cli/bench/serve/interrupt.h"
#include "services/cli/bench/serve/trace_file.h"
#include "services/cli/common/server_options.h"
#include "store/pack/manifest.h"

namespace moestro::cli {
namespace {

constexpr uint64_t kWarmupSeed = 0x7761726d;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string range(const LengthRange& r) { return std::to_string(r.min) + "-" + std::to_string(r.max); }

std::string arrivals_text(const ServeBenchOptions& o) {
  if (!o.trace.empty())
    return o.trace + " at speed " + number(o.speed) + (o.lengths != 1 ? ", lengths times " + number(o.lengths) : "");
  return "Poisson, prompts " + range(o.prompt) + ", outputs " + range(o.output) + ", seed " + std::to_string(o.seed);
}

/// Progress over all loads of a report.
class Shown {
 public:
  Shown(const BenchProgress& progress, size_t loads, size_t count)
      : progress_(progress), count_(count), total_(loads * count) {}
  std::function<void(const LoadProgress&)> of(size_t load) const {
    return [this, load](const LoadProgress& p) {
      progress_(load * count_ + static_cast<uint64_t>(p.ended), total_, progress_text(p));
    };
  }

 private:
  const BenchProgress& progress_;
  uint64_t count_, total_;
};

using RunOne =
    std::function<Result<LoadRun>(const std::vector<Arrival>&, const std::function<void(const LoadProgress&)>&)>;
/// The server's counters before and after a load; nothing where there is no server.
using AskTiers = std::function<std::optional<TierUse>()>;

Status run_all(const ServeBenchOptions& o, const BenchProgress& progress, const RunOne& run, const AskTiers& ask,
               ServeBenchReport& report) {
  auto before = ask();
  for (size_t i = 0; i < o.rates.size(); ++i) {
    ServeRun one{.rate = o.rates[i]};
    MOESTRO_ASSIGN_OR_RETURN(std::vector<Arrival> arrivals, arrivals_of(o, o.rates[i]));
    one.cut = cut_to(report.limits, arrivals);
    const Shown shown(progress, o.rates.size(), arrivals.size());
    MOESTRO_ASSIGN_OR_RETURN(one.load, run(arrivals, shown.of(i)));
    one.summary = summarise(one.load, o.bounds);
    auto after = ask();
    one.tiers = added(before, after);
    before = std::move(after);
    report.runs.push_back(std::move(one));
    if (report.runs.back().load.interrupted) break;
  }
  return Status::ok();
}

Status bench_padded(const ServeBenchOptions& o, const BenchProgress& progress, ServeBenchReport& report) {
  report.server = "static batches of " + std::to_string(o.batch) + " in this process, padded, sorted by " +
                  (o.by_whole_length ? "prompt and output" : "prompt");
  MOESTRO_ASSIGN_OR_RETURN(const store::Manifest manifest, store::open_pack(o.model));
  MOESTRO_ASSIGN_OR_RETURN(const auto description,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  report.model = manifest.model_name, report.vocab = description.spec.vocab;
  report.limits.context = description.spec.max_position;
  const PaddedOptions padded = padded_of(o);
  if (description.spec.is_encoder_decoder())  // a source is read in one step
    report.limits.source = std::min(description.spec.max_position, padded.step_tokens);
  MOESTRO_ASSIGN_OR_RETURN(std::vector<Arrival> arrivals, arrivals_of(o, o.rates.front()));
  cut_to(report.limits, arrivals);
  progress(0, 1, "reading " + o.model);
  MOESTRO_ASSIGN_OR_RETURN(const auto server, PaddedServer::create(padded, arrivals));
  const Interrupt interrupt;
  return run_all(
      o, progress, [&](const auto& due, const auto& shown) { return server->run(due, shown, Interrupt::seen); },
      [] { return std::nullopt; }, report);
}

}  // namespace

std::string progress_text(const LoadProgress& p) {
  const double seconds = std::max(p.seconds, 1e-3);
  char text[160];
  std::snprintf(text, sizeof text, "%.1f s, %.1f requests/s, %.0f tokens/s, %lld under way", p.seconds,
                static_cast<double>(p.ended - p.refused - p.failed) / seconds, static_cast<double>(p.tokens) / seconds,
                static_cast<long long>(p.under_way));
  std::string line = text;
  if (p.refused > 0) line += ", " + std::to_string(p.refused) + " refused";
  if (p.failed > 0) line += ", " + std::to_string(p.failed) + " failed";
  return line;
}

Result<std::vector<Arrival>> arrivals_of(const ServeBenchOptions& o, double rate) {
  if (!o.trace.empty())
    return read_trace(o.trace, {.speed = o.speed, .lengths = o.lengths, .count_max = o.count_given ? o.count : 0});
  return poisson_arrivals({.rate = rate, .count = o.count, .prompt = o.prompt, .output = o.output, .seed = o.seed});
}

std::string completion_of(const LoadOptions& load, const Arrival& arrival, size_t index) {
  return completion_body({.model = load.model,
                          .max_tokens = arrival.output_tokens,
                          .temperature = load.temperature,
                          .seed = (load.seed * 1'000'003 + index) % 2'000'000'011},
                         prompt_ids(arrival, static_cast<uint32_t>(index), load.vocab, load.seed));
}

LoadOptions load_options(const ServeBenchOptions& o, const Served& served) {
  LoadOptions load{.url = served.url,
                   .body = completion_of,
                   .model = served.model,
                   .vocab = o.vocab > 0 ? o.vocab : served.vocab,
                   .seed = o.seed};
  load.temperature = o.temperature, load.concurrency = o.concurrency, load.idle_connections = o.idle,
  load.silence_limit = o.timeout;
  return load;
}

Status warm_up(const LoadOptions& load, int64_t requests, const LengthLimits& limits) {
  if (requests == 0) return Status::ok();
  LoadOptions warm = load;
  warm.seed ^= kWarmupSeed, warm.idle_connections = 0, warm.concurrency = 0;
  std::vector<Arrival> arrivals = poisson_arrivals({.count = requests, .prompt = {64, 64}, .output = {8, 8}});
  cut_to(limits, arrivals);
  MOESTRO_ASSIGN_OR_RETURN(const LoadRun run, run_load(warm, arrivals, nullptr));
  if (run.interrupted) return cancelled("interrupted before the load began");
  for (const auto& [kind, failure] : run.failures)
    return unavailable("http://" + load.url.authority() + ": a first request failed: " + kind + ": " + failure.example);
  return Status::ok();
}

config::BoxConfig box_of(const ServeBenchOptions& o) {
  config::BoxConfig config;
  config.model.pack = o.model;
  config.workers.kv_tokens = o.kv_tokens;
  config.workers.precision = o.experts;
  if (o.threads > 0) config.workers.threads = o.threads;
  config.orchestrator.queue_max = o.queue_max;
  return config;
}

PaddedOptions padded_of(const ServeBenchOptions& o) {
  return {.pack = o.model,
          .store = "",
          .experts = o.experts,
          .threads = o.threads,
          .batch = o.batch,
          .by_whole_length = o.by_whole_length};
}

Result<ServeBenchReport> bench_serve(const ServeBenchOptions& o, const BenchProgress& progress) {
  ServeBenchReport report;
  report.arrivals = arrivals_text(o);
  MOESTRO_RETURN_IF_ERROR(arrivals_of(o, o.rates.front()).status());  // before anything is started
  if (!o.baseline.empty()) {
    MOESTRO_RETURN_IF_ERROR(bench_padded(o, progress, report));
    return report;
  }
  std::unique_ptr<PrivateBox> box;
  Server server;
  if (o.url.empty()) {
    progress(0, 1, "starting store, orchestrator and worker");
    MOESTRO_ASSIGN_OR_RETURN(box, start_box(box_of(o)));
    server.url = url_of(*box);
    report.server = "a box of its own";
  } else {
    MOESTRO_ASSIGN_OR_RETURN(server, server_of({.url = o.url, .api_key = o.api_key, .ca_file = {}}));
    if (server.url.secure)
      return unsupported("--url " + o.url + ": the load is sent over http; give the server's address before TLS");
    report.server = o.url;
  }
  MOESTRO_ASSIGN_OR_RETURN(const Served served, ask_served(server.url, o.url.empty() ? "" : o.model, server.access));
  LoadOptions load = load_options(o, served);
  load.api_key = server.access.api_key;
  if (load.vocab == 0)
    return invalid_argument(report.server + " does not say how many tokens its model knows; give --vocab");
  report.model = served.model, report.vocab = load.vocab, report.limits = served.limits;
  MOESTRO_RETURN_IF_ERROR(warm_up(load, o.warmup, served.limits));
  const RunOne run = [&](const auto& arrivals, const auto& shown) {
    auto ran = run_load(load, arrivals, shown);
    ++load.seed;  // the prompts of this load may be in the KV cache
    return ran;
  };
  MOESTRO_RETURN_IF_ERROR(run_all(o, progress, run, [&server] { return ask_tier_use(server); }, report));
  return report;
}

}  // namespace moestro::cli
