#include "services/worker/run_worker.h"

#include <algorithm>
#include <atomic>
#include <csignal>

#include "common/log.h"
#include "common/model/served_pack.h"
#include "kernels/devices/device_registry.h"
#include "services/box/pack_sizes.h"
#include "services/worker/cuda/step_buffers.h"
#include "services/worker/engine/engine.h"
#include "services/worker/memory_places.h"
#include "services/worker/service/route_trace.h"
#include "services/worker/service/worker_service.h"
#include "services/worker/worker_device.h"
#include "store/client/store_client.h"

namespace moestro::worker {
namespace {

constexpr std::chrono::milliseconds kAttachTry{2000};

/// All that the signal handler touches: any thread may run it, at any time.
std::atomic<bool> g_stop{false};

void on_signal(int) { g_stop.store(true); }

/// From here on SIGTERM and SIGINT drain the service there is, or end the wait for a store; before and after they end
/// the process at once.
class DrainOnSignal {
 public:
  DrainOnSignal() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    for (const int signal : {SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
  }
  ~DrainOnSignal() {
    for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
  }
  DrainOnSignal(const DrainOnSignal&) = delete;
  DrainOnSignal& operator=(const DrainOnSignal&) = delete;
};

Status check_reserve(const WorkerOptions& o, const store::StoreClient& client) {
  uint64_t blob_bytes = 0;
  for (const store::Blob& b : client.manifest().blobs)
    if (b.kind == store::BlobKind::kExpert) blob_bytes = std::max(blob_bytes, b.length);
  const uint64_t needed = static_cast<uint64_t>(o.reserve) * client.pin_cost(blob_bytes);
  if (needed <= client.share_bytes()) return Status::ok();
  return exhausted("--reserve " + std::to_string(o.reserve) + " needs " + std::to_string(needed) +
                   " bytes of the store's arena, this worker's share is " + std::to_string(client.share_bytes()) +
                   "; raise the store's --dram or start fewer workers");
}

/// What outlives an arena: a worker that has to attach anew goes on with these.
struct Lasting {
  SteadyClock clock;
  std::unique_ptr<kernels::Ops> ops;
  std::unique_ptr<cuda::CudaDevice> cuda;  ///< null: another device
  std::unique_ptr<lanes::ChromeTrace> timeline;
  std::unique_ptr<RouteTrace> trace;
  std::unique_ptr<DrainOnSignal> signals;
};

/// The exit of a program that says why in one line; the store's absence comes first, it explains the rest.
Status serve(const WorkerOptions& o, store::StoreClient& client, const device::WorkerDevice& on, engine::Engine& engine,
             WorkerHistory* history, bool& attach_anew) {
  ServiceOptions options;
  options.name = o.name;
  options.device = o.device_name;
  options.orchestrator = o.orchestrator;
  options.pack_identity = client.manifest().identity;
  options.tokenizer = store::tokenizer_of(client.manifest()).value_or(0);
  options.history = history;
  if (device::DeviceExperts* device = on.experts(); device != nullptr) {
    options.device_slots = static_cast<uint32_t>(device->slots());
    options.device_slot_bytes = device->slot_bytes();
    options.take_device_figures = [device](tier::TierFigures& out) { device->take_figures(out); };
    options.idle = [device] { device->idle(); };
  }
  MOESTRO_ASSIGN_OR_RETURN(auto service, WorkerService::create(options, engine, [&client, &on] {
    MOESTRO_RETURN_IF_ERROR(client.check());
    return on.check();
  }));
  // What ended a worker that was ready may be over by its next start: an orchestrator that still counts on a worker
  // that is gone, say.
  const Status end = service->run(g_stop);
  attach_anew = service->attach_anew();
  return end.is_ok() ? end : unavailable(end.message());
}

store::AttachOptions attach_options(const WorkerOptions& o) {
  return {.endpoint = o.store,
          .model = o.engine.model,
          .client = o.name,
          .registers_arena = o.device.spec.kind == config::DeviceSpec::Kind::kCuda,
          .store_wait = o.store_wait};
}

Status observe(const WorkerOptions& o, Lasting& lasting, engine::Engine& engine) {
  if (!o.timeline.empty()) {
    if (!lasting.timeline) {
      MOESTRO_ASSIGN_OR_RETURN(lasting.timeline, lanes::ChromeTrace::create(o.timeline, o.name));
    }
    engine.set_timeline(lasting.timeline.get());
  }
  if (!o.trace.empty()) {
    if (!lasting.trace) {
      MOESTRO_ASSIGN_OR_RETURN(lasting.trace, RouteTrace::create(o.trace, o.engine.model, engine.spec()));
    }
    engine.set_route_observer([&lasting](const engine::RoutedTokens& tokens) { lasting.trace->write(tokens); });
    engine.set_release_observer(
        [&lasting](const ReleasedSequence& released) { lasting.trace->release(released); });
  }
  return Status::ok();
}

std::unique_ptr<WorkerHistory> make_history(const WorkerOptions& o, const model::ModelSpec& spec,
                                            uint64_t pack_identity) {
  const activation::EamcShape shape{static_cast<int32_t>(spec.moe_layers()), static_cast<int32_t>(spec.moe().experts),
                                    static_cast<int32_t>(spec.moe().top_k)};
  return std::make_unique<WorkerHistory>(shape, pack_identity, o.orchestrator);
}

void say_places(const std::string& name, const PlacesReport& places) {
  if (places.remote) log::warn("{}: {}", name, places.line);
  else if (!places.line.empty()) log::info("{}: {}", name, places.line);
}

/// Those of the device that this model is served with. Routes of an encoder's pass are not traced, and nothing is
/// predicted from them.
Result<device::WorkerDeviceOptions> device_options(const WorkerOptions& o, const store::Manifest& manifest) {
  MOESTRO_ASSIGN_OR_RETURN(const auto model,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  device::WorkerDeviceOptions device = o.device;
  if (!model.spec.is_encoder_decoder()) return device;
  const bool on_gpu = device.spec.kind == config::DeviceSpec::Kind::kCuda;
  MOESTRO_RETURN_IF_ERROR(model::check_device(model.spec, o.device_name, on_gpu));
  if (!o.trace.empty()) return unsupported("--trace with an encoder-decoder model; leave it out");
  MOESTRO_RETURN_IF_ERROR(device::take_model(model.spec, device));
  return device;
}

/// The engine's options, with as many tokens of a step as this GPU should have buffers for: the usual number if larger
/// buffers cannot be had. What stands against that too is said where the device is made.
engine::EngineOptions with_step_buffers(const WorkerOptions& o, const store::Manifest& manifest,
                                        const cuda::CudaDevice& on) {
  engine::EngineOptions engine = o.engine;
  const auto size = [&]() -> Result<planner::StepSize> {
    const DType precision = engine.expert_precision.value_or(manifest.expert_precisions.front());
    const auto needs = [&](int64_t tokens) {
      engine.step_tokens_max = tokens;
      return cuda::device_needs(manifest, engine, precision);
    };
    MOESTRO_ASSIGN_OR_RETURN(const cuda::DeviceNeeds usual, needs(o.engine.step_tokens_max));
    MOESTRO_ASSIGN_OR_RETURN(const cuda::DeviceBudget budget, on.share_out(usual));
    MOESTRO_ASSIGN_OR_RETURN(const auto model,
                             model::describe_model(manifest.config_json, manifest.generation_config_json));
    MOESTRO_ASSIGN_OR_RETURN(const auto sizes, box::pack_sizes(manifest, model, precision, engine.kv_dtype));
    MOESTRO_ASSIGN_OR_RETURN(const auto chosen,
                             cuda::choose_step_buffers(sizes, engine.kv_tokens, budget.room_bytes, needs,
                                                       o.device.spec.cuda));
    MOESTRO_ASSIGN_OR_RETURN(const cuda::DeviceNeeds larger, needs(chosen.tokens));
    MOESTRO_RETURN_IF_ERROR(on.share_out(larger).status());
    return chosen;
  }();
  engine.step_tokens_max = size.is_ok() ? size->tokens : o.engine.step_tokens_max;
  if (engine.step_tokens_max > o.engine.step_tokens_max)
    log::info("{}: not every expert fits, so it has buffers for steps of up to {} tokens (--step-buffers)", o.name,
              engine.step_tokens_max);
  return engine;
}

/// Serves from one arena, until drained, or until it is to attach anew: because the arena is over, or for another
/// version of the pack. `client` is then let go of, with all that maps it.
Status serve_from(const WorkerOptions& o, std::unique_ptr<store::StoreClient> client, Lasting& lasting,
                  bool& attach_anew) {
  MOESTRO_RETURN_IF_ERROR(check_reserve(o, *client));
  MOESTRO_ASSIGN_OR_RETURN(const auto on, device_options(o, client->manifest()));
  std::unique_ptr<WorkerHistory> history;  // where a predictor reads it; outlives the device, which has that
  const engine::EngineOptions engine_options =
      o.chooses_step_buffers ? with_step_buffers(o, client->manifest(), *lasting.cuda) : o.engine;
  MOESTRO_ASSIGN_OR_RETURN(auto device, device::WorkerDevice::create(on, engine_options, *client, *lasting.ops,
                                                                     lasting.cuda.get(), lasting.clock));
  MOESTRO_ASSIGN_OR_RETURN(auto engine,
                           engine::Engine::create(engine_options, device.source(), device.backend(), lasting.clock));
  const int64_t host_tokens = engine->limits().kv_host_blocks * kernels::kKvBlockTokens;
  const std::string beside_it = host_tokens == 0 ? ""
                                                 : "; " + std::to_string(host_tokens) + " more in host memory, " +
                                                       std::to_string(engine->kv_host_bytes() >> 20) + " MiB";
  const int64_t slots = engine->limits().state_slots;
  const std::string states = slots == 0 ? ""
                                        : ", " + std::to_string(slots) + " states of sequences (" +
                                              std::to_string(engine->state_bytes() >> 20) + " MiB)";
  log::info("{}: model {}, {} on {} threads{}, {} KV tokens in {} ({} MiB{}){}, context {}; {}", o.name, o.engine.model,
            kernels::isa_name(lasting.ops->options().isa), lasting.ops->options().threads,
            o.places.cpus.empty() ? "" : ", each on its core", engine->limits().kv_blocks * kernels::kKvBlockTokens,
            dtype_name(o.engine.kv_dtype), engine->kv_bytes() >> 20, beside_it, states, engine->limits().context_max,
            device.describe());
  const machine::NodeMap weight_nodes =
      machine::memory_nodes().size() > 1 ? machine::NodeMap::of(client->memory()) : machine::NodeMap();
  lasting.ops->set_weight_nodes(weight_nodes);
  say_places(o.name, report_places(look_at_places(o.places, lasting.cuda.get(), weight_nodes)));
  for (const std::string& line : device.memory_table()) log::info("{}: memory of the device: {}", o.name, line);
  MOESTRO_RETURN_IF_ERROR(observe(o, lasting, *engine));
  if (on.predict != "none") history = make_history(o, engine->spec(), client->manifest().identity);
  MOESTRO_RETURN_IF_ERROR(
      device.attach(*engine, lasting.timeline.get(), history == nullptr ? nullptr : &history->view()));
  if (!lasting.signals) lasting.signals = std::make_unique<DrainOnSignal>();
  const Status end = serve(o, *client, device, *engine, history.get(), attach_anew);
  if (const auto parts = lasting.ops->placed_parts(); parts.on_their_node + parts.elsewhere > 0)
    log::info("{}: {} % of what was computed from weights was computed on the NUMA node where they lie", o.name,
              100 * parts.on_their_node / (parts.on_their_node + parts.elsewhere));
  const bool arena_over = client->store_state() == store::StoreClient::StoreState::kOver;
  attach_anew = (attach_anew || arena_over) && !g_stop.load();
  return end;
}

/// Waits for the next store, however long it takes to come; what it refuses it refuses for good.
Result<std::unique_ptr<store::StoreClient>> attach_anew(const WorkerOptions& o) {
  while (!g_stop.load()) {
    store::AttachOptions options = attach_options(o);
    options.timeout = kAttachTry;
    auto client = store::StoreClient::attach(options);
    if (client.is_ok() || client.status().code() != Code::kUnavailable) return client;
  }
  return cancelled("stopped while waiting for a store");
}

}  // namespace

Status run_worker(const WorkerOptions& o) {
  MOESTRO_RETURN_IF_ERROR(kernels::check_device(o.device_name));  // before the store is waited for
  // Before any thread or buffer is made: they inherit it, and memory comes from the node whose CPU touches it first.
  if (!o.places.allowed.empty())
    MOESTRO_RETURN_IF_ERROR(kernels::cpu::run_on(o.places.allowed).with_context("--numa-node"));
  const bool on_gpu = o.device.spec.kind == config::DeviceSpec::Kind::kCuda;  // its node is not the first core's
  if (!o.places.main_cpus.empty() && !on_gpu) {
    if (const Status kept = kernels::cpu::run_on(o.places.main_cpus); !kept.is_ok())
      log::warn("{}: its main thread keeps to no NUMA node: {}", o.name, kept.message());
  }
  MOESTRO_ASSIGN_OR_RETURN(auto client, store::StoreClient::attach(attach_options(o)));
  Lasting lasting;
  if (const auto why = kernels::amx_not_used(); !why.empty())
    log::warn("AMX is not used: {}; products of many tokens take AVX-512", why);
  lasting.ops = kernels::make_cpu_ops({.threads = o.places.threads,
                                       .deterministic = o.deterministic,
                                       .isa = kernels::best_isa(),
                                       .cpus = o.places.cpus,
                                       .nodes = o.places.nodes});
  if (on_gpu) {
    MOESTRO_ASSIGN_OR_RETURN(lasting.cuda, cuda::CudaDevice::open(o.device.spec.cuda, o.deterministic));
    if (o.device.cublas) lasting.cuda->use_cublas();
  }
  while (true) {
    bool anew = false;
    const Status end = serve_from(o, std::move(client), lasting, anew);
    if (!anew) return end;
    if (!end.is_ok())
      log::warn("{}; its memory is let go of, its sequences are computed again from their tokens", end.message());
    auto next = attach_anew(o);
    if (!next.is_ok()) return g_stop.load() ? Status::ok() : next.status();
    client = std::move(*next);
    log::info("attached anew to the store at {}", o.store);
  }
}

}  // namespace moestro::worker
