#include "services/worker/worker_options.h"

#include <CLI/CLI.hpp>

namespace moestro::worker {

Status check_device(const std::string& device) {
  if (device == "cpu") return Status::ok();
  return unsupported("--device " + device + ": this build computes on 'cpu' only");
}

CommandLine parse_command_line(int argc, char** argv) {
  WorkerOptions o;
  std::string precision;
  CLI::App app("Computes a model's steps with weights from the expert store, for the orchestrator.", "moestro-worker");
  app.add_option("--model", o.engine.model, "model id, as the store and the orchestrator know it")->required();
  app.add_option("--store", o.store, "the store's socket (ipc://PATH)")->required();
  app.add_option("--orchestrator", o.orchestrator, "the orchestrator's socket (ipc://PATH or tcp://HOST:PORT)")->required();
  app.add_option("--name", o.name, "this worker's name")->capture_default_str();
  app.add_option("--device", o.device, "what computes: cpu")->capture_default_str();
  app.add_option("--threads", o.threads, "0: one per physical core")->check(CLI::Range(0, 1024))->capture_default_str();
  app.add_option("--kv-tokens", o.engine.kv_tokens, "capacity of the KV cache")
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 31))->capture_default_str();
  app.add_option("--context", o.engine.context_max, "longest sequence; 0: the model's")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))->capture_default_str();
  app.add_option("--step-tokens", o.engine.step_tokens_max, "most tokens of one step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))->capture_default_str();
  app.add_option("--reserve", o.reserve, "experts that this worker must be able to hold at once")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))->capture_default_str();
  app.add_option("--precision", precision, "of the experts: f32, bf16, f16, int8; default: the pack's first");
  app.add_flag("--deterministic", o.deterministic, "a result does not depend on what else is in the batch, or on threads");
  app.add_option("--trace", o.trace, "write the routes of every token here (JSON Lines)");
  app.add_option("--timeline", o.timeline, "write what every lane did when (Chrome trace format)");
  app.add_option("--log-level", o.log_level, "trace, debug, info, warn, error, off")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return {std::nullopt, code == 0 ? 0 : 2};
  }
  if (!precision.empty()) {
    auto dtype = parse_dtype(precision);
    if (!dtype.is_ok()) {
      std::fprintf(stderr, "moestro-worker: --precision: %s\n", dtype.status().message().c_str());
      return {std::nullopt, 2};
    }
    o.engine.expert_precision = *dtype;
  }
  return {std::move(o), 0};
}

}  // namespace moestro::worker
