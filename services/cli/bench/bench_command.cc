#include "services/cli/bench/bench_command.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "common/log.h"
#include "kernels/limits/device_limits.h"
#include "services/cli/bench/engine_report.h"
#include "services/cli/bench/model/model_command.h"
#include "services/cli/bench/serve/serve_command.h"
#include "services/cli/bench/store/store_command.h"
#include "services/cli/output.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

/// "4G" for a number of bytes; CLI11 prints what is wrong with it.
std::string read_size(const std::string& text, int64_t& bytes) {
  const auto size = config::parse_size(text);
  if (!size.is_ok()) return size.status().message();
  if (*size < kernels::limits::DeviceLimits::kBytesMin || *size > (uint64_t{1} << 40))
    return text + " is not within 256KiB and 1TiB";
  bytes = static_cast<int64_t>(*size);
  return "";
}

/// Less of the host's memory than this may lie in its caches; GPUs' are tried on emulated ones, too.
constexpr int64_t kHostStreamMin = int64_t{64} << 20;

/// A number of a measurement, counted from 0 in the table's order, on every line of stdin; its tokens per second on a
/// line of stdout.
BenchTurns turns_by_lines() {
  const auto next = [ready = false](size_t cases) mutable -> std::optional<size_t> {
    if (!ready) std::puts("ready");
    ready = true;
    for (std::string text; std::fflush(stdout), std::getline(std::cin, text);) {
      size_t index = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
      if (error == std::errc() && end == text.data() + text.size() && index < cases) return index;
      std::printf("error: a number from 0 to %zu is wanted\n", cases - 1);
    }
    return std::nullopt;
  };
  return {next, [](const EngineRun& run) { std::printf("%.6f\n", run.tokens / run.seconds); }};
}

void add_engine_options(command_line::App& engine, EngineBenchOptions& o) {
  const auto list = [&](const char* names, std::vector<int64_t>& values, int64_t least, int64_t most,
                        const char* help) {
    engine.add_option(names, values, help)
        ->delimiter(',')
        ->check(command_line::Range(least, most))
        ->capture_default_str();
  };
  engine.add_option("--model", o.pack, "a pack (made by moestro pack); with --store the name it serves")->required();
  engine.add_option("--store", o.store,
                    "ipc://RUN_DIR/store.sock: weights from a running store, instead of the pack in this process");
  list("--prompt", o.prompts, 0, int64_t{1} << 20, "lengths of one prompt, for prefill; 0: none");
  list("--generate,--gen", o.generates, 0, int64_t{1} << 20, "tokens decoded by each sequence; 0: none");
  list("--batch", o.batches, 1, 4096, "sequences that decode at once");
  engine.add_option("--depth", o.depth, "tokens each sequence has when decoding begins")
      ->check(command_line::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  engine.add_option("--repeats,--repeat", o.repeats, "of everything, after one that warms up")
      ->check(command_line::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  engine.add_option("--threads", o.threads, "0: one per physical core")
      ->check(command_line::Range(0, 1024))
      ->capture_default_str();
  engine.add_option("--experts,--precision", o.experts,
                    "f32, bf16, f16, int8 or int4, of those in the pack; default: its first");
  engine.add_option("--isa", o.isa,
                    "instructions: scalar, avx2, avx2-vnni, avx512, avx512-vnni, ...; default: the machine's best");
  engine.add_option("--step-tokens", o.step_tokens, "tokens of one step, at most")
      ->check(command_line::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  engine.add_option("--kv-tokens", o.kv_tokens, "capacity of the KV cache; 0: what the measurements need")
      ->check(command_line::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  engine.add_option("--kv-dtype", o.kv_dtype, "f32, bf16, f16 or int8: what keys and values are stored in")
      ->check(command_line::IsMember({"f32", "bf16", "f16", "int8"}))
      ->capture_default_str();
  engine.add_option("--kv-sinks", o.kv_sinks, "with --kv-window: tokens from the beginning that each token also sees")
      ->check(command_line::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  engine.add_option("--kv-window", o.kv_window, "tokens that each token sees, itself included; 0: all")
      ->check(command_line::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  command_line::Option* deterministic = engine.add_flag("--deterministic", o.deterministic,
                                               "the kernels of deterministic mode: f32 activations, one order of sums");
  engine
      .add_option("--device", o.device,
                  "cpu, cuda[:INDEX][,vram=SIZE], or emulated:vram=SIZE,link=RATE[,latency=T][,compute=T]")
      ->capture_default_str();
  engine.add_option("--cache", o.cache, "which expert makes room on a device with a memory of its own")
      ->capture_default_str();
  engine.add_option("--predict", o.predict, "which experts are copied to such a device before a layer wants them")
      ->capture_default_str();
  engine.add_option("--cuda-graphs", o.cuda_graphs, "on or off: whether a GPU's decode steps are launched as graphs")
      ->check(command_line::IsMember({"on", "off"}))
      ->capture_default_str();
  engine
      .add_option("--capacity-factor", o.capacity_factor,
                  "an expert takes at most this times its even share of a step's tokens; default: all of them")
      ->check(command_line::PositiveNumber())
      ->excludes(deterministic);
  engine
      .add_option_function<std::string>(
          "--stream", [&o](const std::string&) {},
          "memory that limits are streamed from; default: 4GiB, or a quarter of what is free; of a GPU 512MiB")
      ->check([&o](const std::string& text) { return read_size(text, o.stream_bytes); });
  engine.add_flag("!--no-limits", o.limits, "tokens per second alone, without what the machine could do");
}

}  // namespace

void add_bench_command(command_line::App& app, CommandResult& result) {
  command_line::App* bench = app.add_subcommand("bench", "Measure a part of Moestro on this machine");
  bench->require_subcommand(1);
  add_store_bench(*bench, result);
  add_serve_bench(*bench, result);
  add_model_bench(*bench, result);
  command_line::App* engine = bench->add_subcommand(
      "engine", "Prefill and decode with a pack held in this process, beside what the machine can do at most");
  auto o = std::make_shared<EngineBenchOptions>();
  auto json = std::make_shared<bool>(false);
  add_engine_options(*engine, *o);
  engine->add_flag("--json", *json, "machine-readable results");
  auto turns = std::make_shared<bool>(false);
  engine->add_flag("--turns", *turns,
                   "takes turns with another program: runs measurement N (from 0) for every line `N` on stdin, answers "
                   "with its tokens/s, and reports at the end of input");
  engine->callback([o, json, turns, &result] {
    if (o->stream_bytes > 0 && o->stream_bytes < kHostStreamMin && !o->device.starts_with("cuda"))
      return fail(result,
                  invalid_argument("--stream: " + config::format_size(static_cast<uint64_t>(o->stream_bytes)) +
                                   " is not within 64MiB and 1TiB"),
                  kExitUsage);
    // What the engine and its device log goes to stderr: results alone are on stdout.
    if (const Status logs = log::init("moestro", "info"); !logs.is_ok()) return fail(result, logs);
    const BenchTurns by_lines = turns_by_lines();
    std::unique_ptr<Progress> progress;
    const auto begin = std::chrono::steady_clock::now();
    const auto report = bench_engine(*o, [&](uint64_t done, uint64_t total, const std::string& what) {
      if (!progress) progress = std::make_unique<Progress>("bench engine", total);
      progress->update(done, what, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }, *turns ? &by_lines : nullptr);
    progress.reset();
    if (!report.is_ok()) return fail(result, report.status());
    const std::string text = *json ? engine_report_json(*o, *report).dump(2) + "\n" : engine_report_text(*o, *report);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace moestro::cli
