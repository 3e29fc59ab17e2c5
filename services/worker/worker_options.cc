#include "services/worker/worker_options.h"

#include <cstdio>

#include "services/box/box_flags.h"
#include "services/box/named_pack.h"
#include "services/box/places.h"
#include "services/command_line/command_line.h"
#include "services/worker/choose_schedule.h"
#include "services/worker/mixed_options.h"

namespace moestro::worker {
namespace {

/// Flags of the worker alone. Who it talks to: without them the model and the run directory of the box say it.
struct Peers {
  std::string model, store, orchestrator;
  std::string cpu_share;
};

Status take_peers(const config::BoxConfig& box, Peers given, WorkerOptions& o) {
  if (given.model.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(const auto model, box::model_of(box));
    given.model = model.name;
  }
  if (box.run.dir.empty() && (given.store.empty() || given.orchestrator.empty()))
    return invalid_argument("no sockets: give --run-dir, or --store and --orchestrator, or run.dir in the YAML file");
  o.engine.model = given.model;
  o.store = given.store.empty() ? box::store_endpoint(box.run.dir) : given.store;
  o.orchestrator = given.orchestrator.empty() ? box::orchestrator_endpoint(box.run.dir) : given.orchestrator;
  return Status::ok();
}

Result<device::WorkerDeviceOptions> device_options(const config::BoxConfig::Workers& w) {
  auto spec = config::parse_device(w.device);
  if (!spec.is_ok()) return spec.status().with_context("--device (workers.device)");
  const device::WorkerDeviceOptions options{.spec = *spec,
                                            .cache = w.cache,
                                            .predict = w.predict,
                                            .cuda_graphs = w.cuda_graphs == "on",
                                            .cublas = w.cublas == "auto"};
  MOESTRO_RETURN_IF_ERROR(device::check_worker_device(options));
  return options;
}

Result<WorkerOptions> options_of(const box::BoxFlags& flags, const Peers& peers, const std::string& name) {
  config::BoxConfig box;
  MOESTRO_RETURN_IF_ERROR(flags.read(box));
  WorkerOptions o;
  o.name = name;
  MOESTRO_RETURN_IF_ERROR(take_peers(box, peers, o));
  const config::BoxConfig::Workers& w = box.workers;
  o.device_name = w.device;
  MOESTRO_ASSIGN_OR_RETURN(o.device, device_options(w));
  o.engine.compute_floor = o.device.spec.emulated.compute;
  std::optional<box::CpuShare> share;
  if (!peers.cpu_share.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(share, box::parse_cpu_share(peers.cpu_share));
  }
  MOESTRO_ASSIGN_OR_RETURN(o.places, place_threads(box, name, kernels::cpu::Topology::of_process(), share));
  if (w.kv_tokens) o.engine.kv_tokens = *w.kv_tokens;
  o.engine.state_slots = w.state_slots.value_or(0);
  o.engine.kv_host_tokens = w.kv_host_tokens;
  if (w.kv_host_tokens > 0 && o.device.spec.kind != config::DeviceSpec::Kind::kCuda)
    return invalid_argument(
        "--kv-host-tokens is for a GPU, whose KV cache is not in host memory; here more --kv-tokens do the same");
  if (w.kv_host_tokens > 0 && !box.orchestrator.prefix_cache)
    return invalid_argument(
        "--kv-host-tokens keeps blocks to be found again by their prefix, and orchestrator.prefix_cache is off; leave "
        "out one of the two");
  // Before the schedule's checks, which would name one that --mixed refuses.
  MOESTRO_ASSIGN_OR_RETURN(o.engine.mixed, mixed_options(box, o.device.spec.kind));
  MOESTRO_RETURN_IF_ERROR(take_schedule(box, o.device.spec.kind, o.engine));
  if (o.device.spec.kind != config::DeviceSpec::Kind::kCuda)
    o.engine.overtaking_tokens_max = config::overtaking_tokens(box);
  o.chooses_step_buffers = o.device.spec.kind == config::DeviceSpec::Kind::kCuda && !w.step_buffers &&
                           !box.orchestrator.step_tokens && w.kv_window == 0;
  MOESTRO_ASSIGN_OR_RETURN(o.engine.kv_dtype, parse_dtype(w.kv_dtype));
  o.engine.visible = {.sinks = w.kv_sinks, .window = w.kv_window};
  if (w.context) o.engine.context_max = *w.context;
  if (w.reserve) o.reserve = *w.reserve;
  o.store_wait = w.store_wait;
  if (!w.precision.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(o.engine.expert_precision, parse_dtype(w.precision));
  }
  o.deterministic = w.deterministic;
  o.engine.capacity_factor = w.capacity_factor;
  o.trace = box::own_file(box, w.trace, name);
  o.timeline = box::own_file(box, w.timeline, name);
  o.log_level = box.run.log_level, o.log_format = box.run.log_format, o.fault_points = box.run.fault_points;
  return o;
}

}  // namespace

CommandLine parse_command_line(int argc, char** argv) {
  command_line::App app(
      "A worker: computes the steps of a model for the orchestrator, with weights of the expert store. Started by "
      "moestro "
      "up",
      "moestro-worker");
  Peers peers;
  std::string name = WorkerOptions{}.name;
  const box::BoxFlags flags(app, {"run.dir",
                                  "workers.device",
                                  "workers.cache",
                                  "workers.predict",
                                  "workers.cuda_graphs",
                                  "workers.cublas",
                                  "workers.threads",
                                  "workers.pin_threads",
                                  "workers.numa_node",
                                  "workers.kv_tokens",
                                  "workers.state_slots",
                                  "workers.kv_host_tokens",
                                  "workers.kv_home",
                                  "workers.kv_resident_tokens",
                                  "workers.kv_ring_tokens",
                                  "workers.schedule",
                                  "workers.micro_batches",
                                  "workers.micro_batch_rows",
                                  "workers.step_buffers",
                                  "workers.kv_dtype",
                                  "workers.kv_sinks",
                                  "workers.kv_window",
                                  "workers.context",
                                  "workers.reserve",
                                  "workers.store_wait",
                                  "workers.precision",
                                  "workers.deterministic",
                                  "workers.capacity_factor",
                                  "workers.mixed",
                                  "workers.mixed_max_share",
                                  "workers.trace",
                                  "workers.timeline",
                                  "orchestrator.step_tokens",
                                  "orchestrator.tpot_target",
                                  "orchestrator.overtaking",
                                  "run.log_level",
                                  "run.log_format",
                                  "run.fault_points"});
  app.add_option("--model", peers.model,
                 "Name of the model, as store and orchestrator have it. Default: model.name of the YAML file")
      ->type_name("NAME");
  app.add_option("--store", peers.store, "The store's socket, ipc://PATH. Default: ipc://RUN_DIR/store.sock")
      ->type_name("SOCKET");
  app.add_option("--orchestrator", peers.orchestrator,
                 "The orchestrator's socket, ipc://PATH or tcp://HOST:PORT. Default: ipc://RUN_DIR/orchestrator.sock")
      ->type_name("SOCKET");
  app.add_option("--cpu-share", peers.cpu_share,
                 "Part K of N, counted from 0, of the CPUs of --numa-node. Default: worker-K of workers.count")
      ->type_name("K/N")
      ->advanced();
  app.add_option("--name", name, "This worker's name")->capture_default_str()->type_name("NAME");
  if (const auto code = command_line::parse_program_line(app, argc, argv)) return {std::nullopt, *code};
  auto options = options_of(flags, peers, name);
  if (options.is_ok()) return {std::move(*options), 0};
  std::fprintf(stderr, "moestro-worker: %s\n", options.status().message().c_str());
  return {std::nullopt, 2};
}

}  // namespace moestro::worker
