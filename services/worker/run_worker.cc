#include "services/worker/run_worker.h"

#include <algorithm>
#include <csignal>

#include "common/log.h"
#include "kernels/device_registry.h"
#include "services/worker/engine/engine.h"
#include "services/worker/service/route_trace.h"
#include "services/worker/service/worker_service.h"
#include "store/client/store_client.h"

namespace moestro::worker {
namespace {

WorkerService* g_service = nullptr;  ///< what the signal handler drains; set while handlers are installed

void on_signal(int) {
  if (g_service != nullptr) g_service->drain();
}

/// SIGTERM and SIGINT drain `service` for as long as this lives; before and after they end the process at once.
class DrainOnSignal {
 public:
  explicit DrainOnSignal(WorkerService& service) {
    g_service = &service;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    for (const int signal : {SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
  }
  ~DrainOnSignal() {
    for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
    g_service = nullptr;
  }
  DrainOnSignal(const DrainOnSignal&) = delete;
  DrainOnSignal& operator=(const DrainOnSignal&) = delete;
};

Status check_reserve(const WorkerOptions& o, const store::StoreClient& client) {
  uint64_t blob_bytes = 0;
  for (const store::Blob& b : client.manifest().blobs)
    if (b.kind == store::BlobKind::kExpert) blob_bytes = std::max(blob_bytes, b.length);
  const uint64_t needed = static_cast<uint64_t>(o.reserve) * blob_bytes;
  if (needed <= client.share_bytes()) return Status::ok();
  return exhausted("--reserve " + std::to_string(o.reserve) + " needs " + std::to_string(needed) + " bytes of the store's arena, this worker's share is " +
                   std::to_string(client.share_bytes()) + "; raise the store's --dram or start fewer workers");
}

/// The exit of a program that says why in one line; the store's absence comes first, it explains the rest.
Status serve(const WorkerOptions& o, store::StoreClient& client, engine::Engine& engine) {
  ServiceOptions options;
  options.name = o.name;
  options.device = o.device;
  options.orchestrator = o.orchestrator;
  options.pack_identity = client.manifest().identity;
  MOESTRO_ASSIGN_OR_RETURN(auto service, WorkerService::create(options, engine, [&client] { return client.check(); }));
  const DrainOnSignal signals(*service);
  // What ended a worker that was ready may be over by its next start: an orchestrator that still counts on a worker that is gone, say.
  const Status end = service->run();
  return end.is_ok() ? end : unavailable(end.message());
}

}  // namespace

Status run_worker(const WorkerOptions& o) {
  MOESTRO_RETURN_IF_ERROR(kernels::check_device(o.device));
  // Before any thread or buffer is made: they inherit it, and memory comes from the node whose CPU touches it first.
  if (!o.places.allowed.empty()) MOESTRO_RETURN_IF_ERROR(kernels::cpu::run_on(o.places.allowed).with_context("--numa-node"));
  MOESTRO_ASSIGN_OR_RETURN(auto client, store::StoreClient::attach({.endpoint = o.store, .model = o.engine.model, .client = o.name}));
  MOESTRO_RETURN_IF_ERROR(check_reserve(o, *client));
  const SteadyClock clock;
  const auto ops = kernels::make_cpu_ops({.threads = o.places.threads, .deterministic = o.deterministic, .isa = kernels::best_isa(), .cpus = o.places.cpus});
  MOESTRO_ASSIGN_OR_RETURN(auto engine, engine::Engine::create(o.engine, *client, *ops, clock));
  log::info("{}: model {}, {} on {} threads{}, {} KV tokens in {} ({} MiB), context {}", o.name, o.engine.model,
            kernels::isa_name(ops->options().isa), ops->options().threads, o.places.cpus.empty() ? "" : ", each on its core",
            engine->limits().kv_blocks * kernels::kKvBlockTokens, dtype_name(o.engine.kv_dtype),
            engine->kv_bytes() >> 20, engine->limits().context_max);

  std::unique_ptr<lanes::ChromeTrace> timeline;
  if (!o.timeline.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(timeline, lanes::ChromeTrace::create(o.timeline, o.name));
    engine->set_timeline(timeline.get());
  }
  std::unique_ptr<RouteTrace> trace;
  if (!o.trace.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(trace, RouteTrace::create(o.trace, o.engine.model, engine->spec()));
    engine->set_route_observer([&trace](const engine::RoutedTokens& tokens) { trace->write(tokens); });
  }
  return serve(o, *client, *engine);
}

}  // namespace moestro::worker
