#include "orchestrator/orchestrator.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "common/clock.h"
#include "common/config/host_port.h"
#include "common/log.h"
#include "common/shm/whole_file.h"
#include "orchestrator/api/front_door.h"
#include "orchestrator/api/request_log.h"
#include "orchestrator/api/service.h"
#include "orchestrator/batch/batch_api.h"
#include "orchestrator/batch/folder_files.h"
#include "orchestrator/batch/redis_files.h"
#include "orchestrator/dialects/dialect_api.h"
#include "orchestrator/dialects/responses_api.h"
#include "orchestrator/heap_trim.h"
#include "orchestrator/history_shelf.h"
#include "orchestrator/http/server.h"
#include "orchestrator/state/host_name.h"
#include "orchestrator/state/late_state.h"
#include "orchestrator/state/open_state.h"
#include "orchestrator/stop_signal.h"
#include "orchestrator/ticker.h"

namespace moestro::orchestrator {

namespace {

constexpr std::chrono::seconds kLastBytes{2};
constexpr size_t kLinesLeast = 64;  ///< of batches, in flight

/// The form around an uploaded file may have so many bytes more.
constexpr uint64_t kFormBytes = 64 << 10;

Result<HttpOptions> http_options(const OrchestratorOptions& options) {
  const auto address = config::parse_listen_address(options.http);
  if (!address) return address.status().with_context("--http");
  HttpOptions http;
  http.host = address->host;
  http.port = static_cast<uint16_t>(std::stoi(address->port));
  http.upload_bytes_max = options.file_bytes_max + kFormBytes;
  http.reader_wait = std::chrono::seconds(options.reader_wait_s);
  if (!options.tls_cert.empty()) http.tls = TlsFiles{options.tls_cert, options.tls_key};
  return http;
}

Result<FrontDoorOptions> door_options(const OrchestratorOptions& options) {
  FrontDoorOptions door{std::nullopt, options.origins, error_body_for};
  if (options.api_keys.empty()) return door;
  auto keys = ApiKeys::load(options.api_keys);
  if (!keys.is_ok()) return keys.status().with_context("--api-keys");
  door.keys = std::move(*keys);
  return door;
}

ControlOptions control_options(const OrchestratorOptions& options, const ServedModel& model) {
  ControlOptions control;
  control.leave_max = std::chrono::seconds(options.drain_s);
  control.endpoint = "ipc://" + (options.run_dir / "orchestrator.sock").string();
  control.access = options.access;
  control.model = options.model_name;
  control.step_tokens = options.step_tokens;
  control.steps_in_flight = options.steps_in_flight;
  control.eos_ids = model.eos_ids;
  control.tokenizer = model.tokenizer_digest;
  control.tpot_target = options.tpot_target;
  control.overtaking = options.overtaking;
  control.interactive_weight = options.interactive_weight;
  control.batch_aging = options.batch_aging;
  control.prefix_cache = options.prefix_cache;
  control.queue_max = options.queue_max;
  control.worker_wait = std::chrono::seconds(options.worker_wait_s);
  return control;
}

struct Kept {
  std::unique_ptr<StateStore> state;
  std::unique_ptr<FileStore> files;
};

Result<std::unique_ptr<FileStore>> open_files(const StatePlace& place, const std::string& host) {
  if (place.redis) return std::unique_ptr<FileStore>(std::make_unique<RedisFiles>(*place.redis, host));
  return FolderFiles::open_folder(place.files);
}

Result<Kept> open_kept(const OrchestratorOptions& options, const std::string& host) {
  MOESTRO_ASSIGN_OR_RETURN(const StatePlace place, state_place(options.state, options.run_dir));
  const auto open = [place, host, lease = options.line_lease] { return open_state(place, host, lease); };
  auto state = open();
  if (!state.is_ok() && may_come_later(state.status())) {
    log::error("completions are served without files and batches, until the state can be opened: {}",
               state.status().message());
    state = std::unique_ptr<StateStore>(std::make_unique<LateState>(open, state.status()));
  }
  MOESTRO_RETURN_IF_ERROR(state.status());
  MOESTRO_ASSIGN_OR_RETURN(auto files, open_files(place, host));
  log::info("files, batches and responses are kept in {}{}", place.shown(), place.redis ? ", as " + host : "");
  if (!place.redis && lies_in_memory(place.database))
    log::warn("{} lies in memory: a restart of the machine loses it; give another --state", place.shown());
  return Kept{std::move(*state), std::move(files)};
}

BatchLimits batch_limits(const OrchestratorOptions& options, const ControlPlane& control) {
  BatchLimits limits;
  const size_t most = std::max<size_t>(1, options.queue_max / 2);  // the other half of the queue is for those who wait
  limits.sequences_in_flight = most;
  if (options.batch_lines) {
    limits.lines_in_flight = [lines = *options.batch_lines] { return lines; };
  } else {
    limits.lines_in_flight = [&control, most] {
      const size_t places = control.places();
      return std::min(most, std::max(kLinesLeast, places + places / 4));
    };
  }
  return limits;
}

/// What answers depend on, for hosts that share batches to compare: the version of the pack that workers have, and what
/// this process has read of its pack. Empty: the version is not known yet.
std::string version_text(uint64_t pack, uint64_t text_digest) {
  return pack == 0 ? "" : fmt::format("{:016x}/{:08x}", pack, text_digest >> 32);
}

/// A connection is a descriptor, and many systems let a program have 1024 of them unless it asks.
void raise_open_files(uint32_t connections_max) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = connections_max + 256;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
    log::warn("only {} open files are allowed (ulimit -n): that many clients at once cannot be served", limit.rlim_cur);
}

/// Ends what runs: first what is new, then what is under way, then the answers to it.
void drain(Stop how, int64_t drain_s, HttpServer& server, BatchRunner& runner, ControlPlane& control) {
  if (how == Stop::kAtOnce) log::warn("stopping at once: the program that started this one is gone");
  else log::info("stopping: no new requests, {} s for those under way", drain_s);
  server.close_gate();
  runner.stop_starting();
  control.drain(std::chrono::seconds(how == Stop::kAtOnce ? 0 : drain_s));
  // Every sequence has ended; what is left is to write the answers, to clients that may read slowly.
  if (!server.wait_answered(kLastBytes)) log::warn("some answers could not be written to their end");
  if (!runner.wait_settled(kLastBytes))
    log::warn("some lines of batches have come back too late: they run again at the next start");
  server.stop();
}

}  // namespace

Status run_orchestrator(const OrchestratorOptions& options) {
  const StopSignals signals = StopSignals::block();
  std::signal(SIGPIPE, SIG_IGN);
  const HeapTrim heap_trim;
  MOESTRO_ASSIGN_OR_RETURN(HttpOptions http, http_options(options));
  raise_open_files(http.connections_max);
  MOESTRO_ASSIGN_OR_RETURN(ServedModel model, ServedModel::load(options.model_name, options.pack));
  model.aliases = options.aliases;
  MOESTRO_RETURN_IF_ERROR(
      shm::make_private_dir(options.run_dir, options.access, "run directory").with_context("--run-dir"));
  // Until the end, when its lease has been given back.
  MOESTRO_ASSIGN_OR_RETURN(const HostName host, HostName::take(options.run_dir));
  MOESTRO_ASSIGN_OR_RETURN(Kept kept, open_kept(options, host.text()));
  HistoryShelf shelf(options.model_name);
  std::atomic<uint64_t> served_version{0};
  ControlOptions control_settings = control_options(options, model);
  control_settings.served_version = &served_version;
  control_settings.history = {options.history_capacity, shelf.load(*kept.state), options.history_checkpoint};
  control_settings.keep_history = [&shelf](std::vector<std::byte> checkpoint) { shelf.keep(std::move(checkpoint)); };
  MOESTRO_ASSIGN_OR_RETURN(auto control, ControlPlane::start(std::move(control_settings)));
  MOESTRO_RETURN_IF_ERROR(options.access.apply(options.run_dir / "orchestrator.sock", options.access.shared()));
  MOESTRO_ASSIGN_OR_RETURN(FrontDoorOptions at_the_door, door_options(options));
  Service* service_address = nullptr;
  FrontDoor door(std::move(at_the_door), [&service_address](HttpRequest r, std::shared_ptr<Exchange> e) {
    service_address->handle(std::move(r), std::move(e));
  });
  RequestLog requests([&door](HttpRequest r, std::shared_ptr<Exchange> e) { door.handle(std::move(r), std::move(e)); });
  const auto error_body = [](int status, const std::string& message) {
    ApiError e = bad_request(message);
    e.http_status = status;
    return e.body();
  };
  MOESTRO_ASSIGN_OR_RETURN(auto server, HttpServer::listen(
                                            http,
                                            [&requests](HttpRequest r, std::shared_ptr<Exchange> e) {
                                              requests.handle(std::move(r), std::move(e));
                                            },
                                            error_body));
  const StoreWatch store(options.store, [&served_version, &options](const StoreFigures& figures) {
    for (const StoreFigures::Model& m : figures.models)
      if (m.name == options.model_name) served_version.store(m.version);
  });
  const auto post = [&server](std::function<void()> work) { server->post(std::move(work)); };
  auto forecast = read_forecast(options.run_dir);
  if (forecast.status().code() == Code::kCorrupt) log::warn("{}", forecast.status().message());
  const uint64_t text_digest = model.text_digest;
  Service service(std::move(model), *control, post,
                  {.share_prefixes = options.share_prefixes,
                   .lenient = options.lenient,
                   .mixed_warn_share = options.mixed_warn_share,
                   .forecast = forecast.is_ok() ? std::optional(std::move(*forecast)) : std::nullopt});
  service.watch_store(store);
  service_address = &service;
  auto sampling = std::make_unique<Ticker>(std::chrono::seconds(1),
                                           [&service, &post] { post([&service] { service.sample(); }); });
  auto runner = std::make_unique<BatchRunner>(
      std::move(kept.state), std::move(kept.files), options.model_name,
      batch_limits(options, *control),
      [&service](HttpRequest r, std::shared_ptr<Exchange> e) { service.handle(std::move(r), std::move(e)); }, post,
      unix_seconds, options.aliases,
      [&control, text_digest] { return version_text(control->pack_version(), text_digest); });
  auto batches = std::make_unique<BatchApi>(*runner, options.model_name, post);
  DialectApi dialects(service, options.lenient);
  ResponsesApi responses(service, *runner, {options.lenient, options.response_bytes_max});
  for (Extension* extension : std::initializer_list<Extension*>{batches.get(), &dialects, &responses})
    service.extend(*extension);
  server->read_bodies_of([&door](const HttpRequest& head) { return door.knows(head); });
  server->take_uploads(
      [&batches](const HttpRequest& head, const std::string& type) { return batches->sink_for(head, type); });
  // Readers wait for it to appear.
  MOESTRO_RETURN_IF_ERROR(
      shm::write_whole_file(options.run_dir / "http.port", std::to_string(server->port()) + "\n", 0644));
  const config::HostPort address{http.host, std::to_string(server->port())};
  log::info("listening on {}://{}", http.tls ? "https" : "http", address.text());
  shelf.open(*runner, *control);  // last: from here on nothing but close() ends what it uses

  std::thread drainer([&] { drain(signals.wait(), options.drain_s, *server, *runner, *control); });
  server->run();
  drainer.join();
  service.end_reading();
  sampling.reset();
  shelf.close(kLastBytes);
  service.forget_extensions();
  batches.reset();
  runner.reset();
  control.reset();  // lets the workers go
  server.reset();   // and with it the completions it broke off, while what they refer to is there
  std::error_code ignored;
  std::filesystem::remove(options.run_dir / "http.port", ignored);
  log::info("stopped");
  return Status::ok();
}

}  // namespace moestro::orchestrator
