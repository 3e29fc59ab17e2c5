#include "services/cli/bench_command.h"

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
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
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
      std::printf("error: not a number from 0 to %zu\n", cases - 1);
    }
    return std::nullopt;
  };
  return {next, [](const EngineRun& run) { std::printf("%.6f\n", run.tokens / run.seconds); }};
}

/// The weights, and what is measured with them.
void add_case_options(command_line::App& engine, EngineBenchOptions& o) {
  const auto list = [&](const char* names, std::vector<int64_t>& values, int64_t least, int64_t most,
                        const char* help) {
    engine.add_option(names, values, help)
        ->delimiter(',')
        ->check(command_line::Range(least, most))
        ->capture_default_str();
  };
  engine
      .add_option("--model", o.pack,
                  "Pack: a directory made by moestro pack. With --store, the name of a model that it serves")
      ->required()
      ->type_name("PACK");
  engine
      .add_option(
          "--store", o.store,
          "Take the weights from a running store, at ipc://RUN_DIR/store.sock, instead of reading the pack into "
          "this process")
      ->type_name("SOCKET");
  list("--prompt", o.prompts, 0, int64_t{1} << 20, "Lengths of the prompt for prefill, in tokens. 0: no prefill");
  engine.add_option("--prompts-at-once", o.prompts_at_once, "Prompts that prefill computes")
      ->check(command_line::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  list("--generate,--gen", o.generates, 0, int64_t{1} << 20, "Tokens that each sequence decodes. 0: none");
  list("--batch", o.batches, 1, 4096, "Sequences that decode at once");
  engine.add_option("--depth", o.depth, "Tokens that each sequence has when decoding begins")
      ->check(command_line::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  engine.add_option("--repeats,--repeat", o.repeats, "Runs of each measurement, after one that warms up")
      ->check(command_line::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
}

/// How they are computed on any device; returns --deterministic.
command_line::Option* add_compute_options(command_line::App& engine, EngineBenchOptions& o) {
  engine.add_option("--threads", o.threads, "Compute threads. 0: one per physical core")
      ->check(command_line::Range(0, 1024))
      ->capture_default_str();
  engine.add_option("--experts,--precision", o.experts,
                    "Expert precision to use, of those in the pack. Default: the pack's first");
  engine.add_option("--isa", o.isa,
                    "Instruction set: scalar, avx2, avx2-vnni, avx512, avx512-vnni, ... Default: the machine's best");
  engine.add_option("--step-tokens", o.step_tokens, "Most tokens of one step")
      ->check(command_line::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  engine.add_option("--kv-tokens", o.kv_tokens, "Tokens that the KV cache holds. 0: what the measurements need")
      ->check(command_line::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  engine.add_option("--kv-dtype", o.kv_dtype, "Format of keys and values")
      ->check(command_line::IsMember({"f32", "bf16", "f16", "int8"}))
      ->capture_default_str();
  engine.add_option("--kv-sinks", o.kv_sinks, "With --kv-window: tokens from the beginning that each token also sees")
      ->check(command_line::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  engine.add_option("--kv-window", o.kv_window, "Tokens that each token sees, itself included. 0: all")
      ->check(command_line::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  return engine.add_flag("--deterministic", o.deterministic,
                         "Use the kernels of deterministic mode: f32 activations, one order of sums");
}

void add_device_options(command_line::App& engine, EngineBenchOptions& o) {
  engine
      .add_option("--device", o.device,
                  "Device: cpu, cuda[:INDEX][,vram=SIZE][,dense=counted|N%], or emulated:vram=SIZE,link=RATE"
                  "[,latency=T][,compute=T] (with ,kv=counted the KV cache takes of that memory too, with "
                  ",dense=counted or ,dense=N% dense weights)")
      ->capture_default_str()
      ->type_name("DEVICE");
  engine.add_option("--schedule", o.schedule, "As the worker's flag: auto, layerwise, expert-pipeline or cgo")
      ->check(command_line::IsMember({"auto", "layerwise", "expert-pipeline", "cgo"}))
      ->capture_default_str();
  engine.add_option("--kv-home", o.kv_home, "As the worker's flag: device or host")
      ->check(command_line::IsMember({"device", "host"}))
      ->capture_default_str();
  const auto as_worker = [&engine](const char* flag, int64_t& value) {
    engine.add_option(flag, value, "As the worker's flag. 0: the worker's default")
        ->check(command_line::Range(int64_t{0}, int64_t{1} << 32))
        ->capture_default_str();
  };
  as_worker("--micro-batches", o.micro_batches);
  as_worker("--kv-resident-tokens", o.kv_resident_tokens);
  as_worker("--kv-ring-tokens", o.kv_ring_tokens);
  engine
      .add_option("--cache", o.cache, "On a device with its own memory: the policy that chooses which expert to evict")
      ->capture_default_str()
      ->type_name("POLICY");
  engine
      .add_option("--predict", o.predict,
                  "On such a device, or with --store: the predictor that chooses which experts to prefetch")
      ->capture_default_str()
      ->type_name("PREDICTOR");
  engine.add_option("--cuda-graphs", o.cuda_graphs, "Launch the decode steps of a GPU as CUDA graphs")
      ->check(command_line::IsMember({"on", "off"}))
      ->capture_default_str();
  engine
      .add_option("--cublas", o.cublas, "Leave dense products of many tokens to cuBLASLt on a GPU, if it is installed")
      ->check(command_line::IsMember({"auto", "off"}))
      ->capture_default_str();
}

/// What is not computed in full, or not exactly.
void add_short_cuts(command_line::App& engine, EngineBenchOptions& o, command_line::Option* deterministic) {
  engine
      .add_option("--capacity-factor", o.capacity_factor,
                  "An expert takes at most this many times its even share of a step's tokens. Default: no limit")
      ->check(command_line::PositiveNumber())
      ->excludes(deterministic);
  engine
      .add_option("--mixed", o.mixed,
                  "Low copies of missing experts, as --mixed of moestro up: LOW[,t1=SCORE][,t2=SCORE][,share=SHARE]")
      ->excludes(deterministic)
      ->type_name("LOW");
}

void add_limit_options(command_line::App& engine, EngineBenchOptions& o) {
  engine
      .add_option_function<std::string>(
          "--stream", [&o](const std::string&) {},
          "Memory to stream for the machine's limits. Default: 4GiB or a quarter of what is free; on a GPU 512MiB")
      ->type_name("SIZE")
      ->check([&o](const std::string& text) { return read_size(text, o.stream_bytes); });
  engine.add_flag("!--no-limits", o.limits, "Do not measure what the machine could do, only tokens per second");
}

}  // namespace

void add_bench_command(command_line::App& app, CommandResult& result) {
  command_line::App* bench =
      app.add_subcommand("bench", "Measure Moestro on this machine, or make a model to measure with");
  bench->require_subcommand(1);
  add_store_bench(*bench, result);
  add_serve_bench(*bench, result);
  add_model_bench(*bench, result);
  command_line::App* engine = bench->add_subcommand(
      "engine", "Measure prefill and decode of a pack in this process, compared with the machine's limits");
  auto o = std::make_shared<EngineBenchOptions>();
  auto json = std::make_shared<bool>(false);
  add_case_options(*engine, *o);
  command_line::Option* deterministic = add_compute_options(*engine, *o);
  add_device_options(*engine, *o);
  add_short_cuts(*engine, *o, deterministic);
  add_limit_options(*engine, *o);
  engine->add_flag("--json", *json, "Print the results as JSON");
  auto turns = std::make_shared<bool>(false);
  engine->add_flag(
      "--turns", *turns,
      "Take turns with another program: run measurement N (from 0) for each line `N` on stdin, answer with "
      "its tokens/s, and report at the end of the input");
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
    const std::string text =
        *json ? json_text(engine_report_json(*o, *report), 2) + "\n" : engine_report_text(*o, *report);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace moestro::cli
