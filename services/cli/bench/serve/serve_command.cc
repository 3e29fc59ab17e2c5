#include "services/cli/bench/serve/serve_command.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "services/cli/bench/serve/serve_report.h"
#include "services/cli/bench/serve/table.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/common/server_options.h"
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
    return text + " is not a range of tokens, such as 8-128";
  return "";
}

/// "4", "0.5", "inf".
std::string read_rate(const std::string& text, double& rate) {
  if (text == "inf") return rate = kAllAtOnce, "";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc() || end != text.data() + text.size() || !(rate > 0 && rate <= 1e6))
    return text + " is not a rate in requests per second, such as 4, 0.5 or inf";
  return "";
}

std::string take(const std::string& error) {
  if (!error.empty()) throw command_line::ValidationError(error);
  return "";
}

void add_load(command_line::App& app, ServeBenchOptions& o) {
  app.add_option_function<std::vector<std::string>>(
         "--rate",
         [&o](const std::vector<std::string>& texts) {
           o.rates.clear();
           for (const std::string& text : texts) take(read_rate(text, o.rates.emplace_back()));
         },
         "Requests per second, with Poisson arrivals. A list runs one load after the other. Default: inf, all at once")
      ->delimiter(',')
      ->type_name("RATE");
  app.add_option_function<int64_t>(
         "--count,--num-prompts", [&o](int64_t n) { o.count = n, o.count_given = true; },
         "Requests of each load. Default: 256; with --trace all of them")
      ->check(command_line::Range(int64_t{1}, int64_t{10'000'000}));
  app.add_option_function<std::string>(
         "--prompt", [&o](const std::string& text) { take(read_range(text, o.prompt)); },
         "Tokens of a prompt, uniformly distributed; of an encoder-decoder model, of a source. Default: 8-128")
      ->type_name("MIN-MAX");
  app.add_option_function<std::string>(
         "--output", [&o](const std::string& text) { take(read_range(text, o.output)); },
         "Tokens of an answer, uniformly distributed. Default: 1-128")
      ->type_name("MIN-MAX");
  app.add_option("--trace", o.trace, "Take arrivals and lengths from a file: Azure's CSV or Mooncake's JSON lines")
      ->type_name("FILE");
  app.add_option("--speed", o.speed, "Speed of the trace. 2 replays it in half the time")
      ->check(command_line::Range(1e-3, 1e6))
      ->capture_default_str();
  app.add_option("--lengths", o.lengths,
                 "Factor for the trace's lengths, for models with a shorter context. Requests that are still too long "
                 "are cut, and "
                 "counted")
      ->check(command_line::Range(1e-6, 1e3))
      ->capture_default_str();
  app.add_option("--concurrency,--max-concurrency", o.concurrency,
                 "Most requests at once. Others wait in the benchmark. 0: no limit")
      ->check(command_line::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
  app.add_option("--idle", o.idle, "Idle connections to keep open during the load")
      ->check(command_line::Range(int64_t{0}, int64_t{100'000}))
      ->capture_default_str();
  app.add_option("--warm-up", o.warmup, "Requests before each load that are not counted")
      ->check(command_line::Range(int64_t{0}, int64_t{10'000}))
      ->capture_default_str();
  app.add_option("--seed", o.seed,
                 "Seed of arrivals, lengths and prompts. Each further load takes the next seed for its prompts")
      ->capture_default_str();
  app.add_option("--temperature", o.temperature, "Sampling temperature")
      ->check(command_line::Range(0.0, 2.0))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--goodput",
         [&o](const std::string& text) {
           auto bounds = parse_goodput(text);
           if (!bounds.is_ok()) throw command_line::ValidationError(bounds.status().message());
           o.bounds = *bounds;
         },
         "Limits within which a request counts as good: ttft:500ms,tpot:50ms,e2e:10s")
      ->type_name("LIMITS");
  app.add_option_function<std::string>(
         "--timeout",
         [&o](const std::string& text) {
           auto limit = config::parse_duration(text);
           if (!limit.is_ok()) throw command_line::ValidationError(limit.status().message());
           o.timeout = *limit;
         },
         "Longest silence during an answer. Default: 10min")
      ->type_name("TIME");
}

void add_server(command_line::App& app, ServeBenchOptions& o) {
  command_line::Option* url = app.add_option("--url", o.url,
                                             "A running server with OpenAI's completions API. --model is then a name "
                                             "that it serves (default: its first)")
                                  ->type_name("URL");
  add_key_option(app, o.api_key);
  app.add_option("--model", o.model,
                 "Pack: a directory made by moestro pack. The benchmark starts its own server for it")
      ->type_name("PACK");
  app.add_option("--vocab", o.vocab, "Prompts are token ids below this number. Default: what the server says")
      ->check(command_line::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option(
         "--baseline", o.baseline,
         "padded: no server, but static batches on the same engine in this process, padded to the longest request")
      ->check(command_line::IsMember({"padded"}))
      ->excludes(url);
  app.add_option("--batch", o.batch, "Requests in each batch of the baseline")
      ->check(command_line::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  app.add_flag("--whole-length", o.by_whole_length,
               "The baseline sorts by prompt and output length, as if outputs were known");
  app.add_option("--kv-tokens", o.kv_tokens, "Tokens of the KV cache of the benchmark's own server")
      ->check(command_line::Range(int64_t{16}, int64_t{1} << 31))
      ->capture_default_str()
      ->excludes(url);
  app.add_option("--queue-max", o.queue_max, "Queue limit of the benchmark's own server")
      ->check(command_line::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str()
      ->excludes(url);
  app.add_option("--threads", o.threads,
                 "Compute threads of the benchmark's own server and of the baseline. 0: automatic")
      ->check(command_line::Range(0, 1024))
      ->capture_default_str()
      ->excludes(url);
  app.add_option("--experts", o.experts, "Expert precision to use, of those in the pack. Default: the pack's first")
      ->excludes(url);
}

struct Command {
  ServeBenchOptions bench;
  TableOptions table;
  bool json = false, rows = false;
};

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

Status run(const Command& c, const BenchProgress& progress, std::string& text) {
  if (c.bench.url.empty() && c.bench.model.empty())
    return invalid_argument("no server: give --url URL, or --model PACK to start one");
  if (c.rows) {
    MOESTRO_ASSIGN_OR_RETURN(const ServeTable table, serve_table(c.bench, c.table, progress));
    text = c.json ? json_text(table_json(table), 1) + "\n" : table_text(table);
    return Status::ok();
  }
  MOESTRO_ASSIGN_OR_RETURN(const ServeBenchReport report, bench_serve(c.bench, progress));
  text = c.json ? json_text(serve_report_json(c.bench, report), 1) + "\n" : serve_report_text(c.bench, report);
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
      "serve", "Send requests over HTTP as users do. Measure throughput and latency under Poisson arrivals or a trace");
  auto c = std::make_shared<Command>();
  add_server(*serve, c->bench);
  add_load(*serve, c->bench);
  command_line::Option* table = serve->add_flag(
      "--table", c->rows,
      "Measure the rows of docs/perf/serving.md on servers of its own, each in turns with its baseline");
  serve->add_option("--rounds", c->table.rounds, "Rounds of the table. Each row is their median")
      ->check(command_line::Range(int64_t{1}, int64_t{100}))
      ->capture_default_str()
      ->needs(table);
  serve->add_option("--only", c->table.only, "Rows of the table to measure")
      ->delimiter(',')
      ->check(command_line::IsMember({"mixed", "overload", "beside", "streams"}))
      ->needs(table);
  serve->add_flag("--json", c->json,
                  "Print the results as JSON, times in milliseconds. With --table: a list of rows {what, value, unit, "
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
