#include "services/cli/bench/bench_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/bench/engine_bench.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct Spread {
  double median = 0, min = 0, max = 0;
};

Spread spread(const std::vector<EngineRun>& runs, double EngineRun::*field) {
  std::vector<double> values;
  for (const EngineRun& r : runs) values.push_back(r.*field);
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

nlohmann::ordered_json to_json(const Spread& s) { return {{"median", s.median}, {"min", s.min}, {"max", s.max}}; }

void print_json(const EngineBenchOptions& o, const EngineBenchReport& report) {
  const auto field = [&](double EngineRun::*f) { return to_json(spread(report.runs, f)); };
  const nlohmann::ordered_json json = {
      {"pack", o.pack}, {"threads", report.threads}, {"isa", report.isa}, {"deterministic", o.deterministic},
      {"prompt", o.prompt}, {"gen", o.gen}, {"batch", o.batch}, {"repeat", o.repeat},
      {"prefill_tokens_per_s", field(&EngineRun::prefill_tokens_per_s)},
      {"decode_tokens_per_s", field(&EngineRun::decode_tokens_per_s)},
      {"weight_bytes_per_step", field(&EngineRun::weight_bytes_per_step)},
      {"dram_read_bytes_per_s", field(&EngineRun::read_bytes_per_s)},
      {"dram_bandwidth_share", field(&EngineRun::bandwidth_share)}};
  std::printf("%s\n", json.dump(2).c_str());
}

void print_text(const EngineBenchOptions& o, const EngineBenchReport& report) {
  const auto line = [&](const char* what, double EngineRun::*field, double unit, const char* name) {
    const Spread s = spread(report.runs, field);
    std::printf("%-22s %10.2f %10.2f %10.2f  %s\n", what, s.median / unit, s.min / unit, s.max / unit, name);
  };
  std::printf("%s: %s, %d threads%s, batch %lld, %lld + %lld tokens, %lld repetitions\n", o.pack.c_str(), report.isa.c_str(), report.threads,
              o.deterministic ? ", deterministic" : "", static_cast<long long>(o.batch), static_cast<long long>(o.prompt),
              static_cast<long long>(o.gen), static_cast<long long>(o.repeat));
  std::printf("%-22s %10s %10s %10s\n", "", "median", "min", "max");
  line("prefill", &EngineRun::prefill_tokens_per_s, 1, "tokens/s");
  line("decode", &EngineRun::decode_tokens_per_s, 1, "tokens/s");
  line("weights per step", &EngineRun::weight_bytes_per_step, 1e6, "MB");
  line("DRAM read loop", &EngineRun::read_bytes_per_s, 1e9, "GB/s");
  line("share of DRAM reads", &EngineRun::bandwidth_share, 0.01, "%");
}

}  // namespace

void add_bench_command(CLI::App& app, CommandResult& result) {
  CLI::App* bench = app.add_subcommand("bench", "Measure a part of Moestro on this machine");
  bench->require_subcommand(1);
  CLI::App* engine = bench->add_subcommand("engine", "Decode with a pack held in this process: tokens/s and share of DRAM bandwidth");
  auto o = std::make_shared<EngineBenchOptions>();
  auto json = std::make_shared<bool>(false);
  engine->add_option("--model", o->pack, "a pack (made by moestro pack)")->required();
  engine->add_option("--prompt", o->prompt, "tokens of each prompt")->check(CLI::Range(int64_t{1}, int64_t{1} << 20))->capture_default_str();
  engine->add_option("--gen", o->gen, "tokens decoded after it")->check(CLI::Range(int64_t{1}, int64_t{1} << 20))->capture_default_str();
  engine->add_option("--batch", o->batch, "sequences side by side")->check(CLI::Range(int64_t{1}, int64_t{4096}))->capture_default_str();
  engine->add_option("--threads", o->threads, "0: one per physical core")->check(CLI::Range(0, 1024))->capture_default_str();
  engine->add_option("--repeat", o->repeat, "repetitions after one that warms up")->check(CLI::Range(int64_t{1}, int64_t{1000}))->capture_default_str();
  engine->add_option("--precision", o->precision, "of the experts: f32, bf16, f16, int8, int4; default: the pack's first");
  engine->add_flag("--deterministic", o->deterministic, "the kernels of deterministic mode; in this version they are the same");
  engine->add_flag("--json", *json, "machine-readable results");
  engine->callback([o, json, &result] {
    const auto report = bench_engine(*o);
    if (!report.is_ok()) return fail(result, report.status());
    if (*json) print_json(*o, *report);
    else print_text(*o, *report);
  });
}

}  // namespace moestro::cli
