#include "services/cli/bench/serve/serve_command.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "services/cli/bench/serve/serve_report.h"
#include "services/cli/bench/serve/table.h"
#include "services/cli/output.h"
#include "services/cli/server_options.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

constexpr int64_t kLengthMax = int64_t{1} << 20;

/// "8-128" or "64".
std::string read_range(const std::string& text, LengthRange& range) {
  const auto number = [](std::string_view t, int64_t& n) {
    const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), n);
    return error == std::errc() && end == t.data() + t.size() && n >= 1 && n <= kLengthMax;
  };
  const size_t dash = text.find('-');
  const std::string_view all = text;
  if (!number(all.substr(0, dash), range.min) ||
      !number(dash == std::string::npos ? all : all.substr(dash + 1), range.max) || range.min > range.max)
    return text + " is no range of tokens like 8-128";
  return "";
}

/// "4", "0.5", "inf".
std::string read_rate(const std::string& text, double& rate) {
  if (text == "inf") return rate = kAllAtOnce, "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc() || end != text.data() + text.size() || !(rate > 0 && rate <= 1e6))
    return text + " is no rate like 4, 0.5 or inf (requests a second)";
  return "";
}

std::string take(const std::string& error) {
  if (!error.empty()) throw command_line::ValidationError(error);
  return "";
}

void add_load(command_line::App& app, ServeBenchOptions& o) {
  app.add_option_function<std::vector<std::string>>("--rate", [&o](const std::vector<std::string>& texts) {
    o.rates.clear();
    for (const std::string& text : texts) take(read_rate(text, o.rates.emplace_back()));
  }, "requests a second, Poisson; a list: one load after the other; default: inf, all at once")->delimiter(',');
  app.add_option_function<int64_t>(
         "--count,--num-prompts", [&o](int64_t n) { o.count = n, o.count_given = true; },
         "requests of a load; default: 256, of a trace all")
      ->check(command_line::Range(int64_t{1}, int64_t{10'000'000}));
  app.add_option_function<std::string>(
      "--prompt", [&o](const std::string& text) { take(read_range(text, o.prompt)); },
      "tokens of a prompt, uniform within; default: 8-128");
  app.add_option_function<std::string>(
      "--output", [&o](const std::string& text) { take(read_range(text, o.output)); },
      "tokens of an answer, uniform within; default: 1-128");
  app.add_option("--trace", o.trace, "arrivals and lengths from a file instead: Azure's CSV, Mooncake's JSON lines");
  app.add_option("--speed", o.speed, "of the trace: 2 replays it in half the time")
      ->check(command_line::Range(1e-3, 1e6))
      ->capture_default_str();
  app.add_option(
         "--lengths", o.lengths,
         "factor of the trace's lengths, for models of a smaller context; what is still longer is cut, and counted")
      ->check(command_line::Range(1e-6, 1e3))
      ->capture_default_str();
  app.add_option("--concurrency,--max-concurrency", o.concurrency,
                 "requests under way at most, others wait here; 0: no bound")
      ->check(command_line::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
  app.add_option("--idle", o.idle, "connections kept open beside the load")
      ->check(command_line::Range(int64_t{0}, int64_t{100'000}))
      ->capture_default_str();
  app.add_option("--warm-up", o.warmup, "requests before each report that are not counted")
      ->check(command_line::Range(int64_t{0}, int64_t{10'000}))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of arrivals, lengths and prompts; each load's prompts have the next one")
      ->capture_default_str();
  app.add_option("--temperature", o.temperature, "of the sampling")
      ->check(command_line::Range(0.0, 2.0))
      ->capture_default_str();
  app.add_option_function<std::string>("--goodput", [&o](const std::string& text) {
    auto bounds = parse_goodput(text);
    if (!bounds.is_ok()) throw command_line::ValidationError(bounds.status().message());
    o.bounds = *bounds;
  }, "bounds that a request must keep to count: ttft:500ms,tpot:50ms,e2e:10s");
  app.add_option_function<std::string>("--timeout", [&o](const std::string& text) {
    auto limit = config::parse_duration(text);
    if (!limit.is_ok()) throw command_line::ValidationError(limit.status().message());
    o.timeout = *limit;
  }, "longest silence of an answer; default: 10min");
}

void add_server(command_line::App& app, ServeBenchOptions& o) {
  command_line::Option* url = app.add_option(
      "--url", o.url,
      "a server of OpenAI's completions API that runs; --model is then the name it serves, default: its first");
  add_key_option(app, o.api_key);
  app.add_option("--model", o.model, "a pack (made by moestro pack): a box of the benchmark's own serves it");
  app.add_option("--vocab", o.vocab, "prompts are ids below it; default: what the server says")
      ->check(command_line::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option("--baseline", o.baseline,
                 "padded: no server, but static batches on the same engine in this process, padded to their longest")
      ->check(command_line::IsMember({"padded"}))
      ->excludes(url);
  app.add_option("--batch", o.batch, "rows of the baseline's batches")
      ->check(command_line::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  app.add_flag("--whole-length", o.by_whole_length,
               "the baseline sorts by prompt and output, as if outputs were known");
  app.add_option("--kv-tokens", o.kv_tokens, "KV cache of its own worker")
      ->check(command_line::Range(int64_t{16}, int64_t{1} << 31))
      ->capture_default_str()
      ->excludes(url);
  app.add_option("--queue-max", o.queue_max, "of its own orchestrator")
      ->check(command_line::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str()
      ->excludes(url);
  app.add_option("--threads", o.threads, "of its own worker, and of the baseline; 0: as they choose")
      ->check(command_line::Range(0, 1024))
      ->capture_default_str()
      ->excludes(url);
  app.add_option("--experts", o.experts, "precision, of those in the pack; default: its first")->excludes(url);
}

struct Command {
  ServeBenchOptions bench;
  TableOptions table;
  bool json = false, rows = false;
};

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

Status run(const Command& c, const BenchProgress& progress, std::string& text) {
  if (c.bench.url.empty() && c.bench.model.empty())
    return invalid_argument("--url of a server, or --model PACK to start one, is wanted");
  if (c.rows) {
    MOESTRO_ASSIGN_OR_RETURN(const ServeTable table, serve_table(c.bench, c.table, progress));
    text = c.json ? table_json(table).dump(1) + "\n" : table_text(table);
    return Status::ok();
  }
  MOESTRO_ASSIGN_OR_RETURN(const ServeBenchReport report, bench_serve(c.bench, progress));
  text = c.json
             ? serve_report_json(c.bench, report).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
             : serve_report_text(c.bench, report);
  for (const ServeRun& one : report.runs)
    if (!one.load.interrupted && one.summary.done == 0)
      return unavailable("no request was answered" + (one.load.failures.empty()
                                                          ? ""
                                                          : ": " + one.load.failures.begin()->first + ": " +
                                                                one.load.failures.begin()->second.example));
  return Status::ok();
}

}  // namespace

void add_serve_bench(command_line::App& bench, CommandResult& result) {
  command_line::App* serve = bench.add_subcommand(
      "serve", "Requests as users send them, over HTTP: throughput and latencies under Poisson arrivals or a trace");
  auto c = std::make_shared<Command>();
  add_server(*serve, c->bench);
  add_load(*serve, c->bench);
  command_line::Option* table = serve->add_flag(
      "--table", c->rows, "the rows of docs/perf/serving.md on boxes of its own, each beside its baseline, in turns");
  serve->add_option("--rounds", c->table.rounds, "of the table's rows; each is a median of them")
      ->check(command_line::Range(int64_t{1}, int64_t{100}))
      ->capture_default_str()
      ->needs(table);
  serve->add_option("--only", c->table.only, "rows of the table")
      ->delimiter(',')
      ->check(command_line::IsMember({"mixed", "overload", "beside", "streams"}))
      ->needs(table);
  serve->add_flag("--json", c->json,
                  "machine-readable results, times in milliseconds; of the table a list of rows {what, value, unit, "
                  "baseline, ratio, aim, ...}");
  serve->get_option("--url")->excludes(table);
  serve->callback([c, &result] {
    std::unique_ptr<Progress> bar;
    uint64_t total_shown = 0;
    const auto begin = std::chrono::steady_clock::now();
    std::string text;
    const Status status = run(*c, [&](uint64_t done, uint64_t total, const std::string& what) {
      if (!bar || total != total_shown) bar = std::make_unique<Progress>("bench serve", total_shown = total);
      bar->update(done, what, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }, text);
    bar.reset();
    print(text);
    if (!status.is_ok()) fail(result, status);
  });
}

}  // namespace moestro::cli
