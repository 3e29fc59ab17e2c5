#include "services/cli/bench/store/process_rows.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "common/config/units.h"
#include "common/model/mixer.h"
#include "kernels/ops.h"
#include "services/cli/bench/store/fetch_rows.h"
#include "services/cli/bench/store/private_box.h"
#include "services/cli/bench/store/process_memory.h"
#include "services/cli/common/http_client.h"
#include "store/client/status_client.h"

namespace moestro::cli {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kKvTokens = 2048;
constexpr int64_t kStepTokens = 512;  ///< as many as a step takes
constexpr int64_t kAnswerTokens = 2;
constexpr milliseconds kProcessPatience{60000};

StoreRow at_most(std::string what, std::string unit, double value, double aim, std::string how) {
  StoreRow r;
  r.what = std::move(what), r.unit = std::move(unit), r.value = value;
  r.aim_kind = StoreRow::Aim::kAtMost, r.aim = aim, r.how = std::move(how);
  return r;
}

/// What the workers are set up for, of which their memory beyond the arena is a consequence.
struct Configured {
  uint64_t kv_bytes = 0;  ///< of one worker's cache of kKvTokens
  int64_t prompt_tokens = 0;  ///< as many as a step takes, or as the model allows
};

Result<Configured> configured(const store::Manifest& manifest) {
  MOESTRO_ASSIGN_OR_RETURN(const auto description,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  Configured c{.prompt_tokens = std::min(kStepTokens, description.spec.max_position - kAnswerTokens)};
  for (const model::LayerSpec& layer : description.spec.layers)
    c.kv_bytes += static_cast<uint64_t>(model::kv_block_bytes(layer.kv, DType::kF32) *
                                        (kKvTokens / kernels::kKvBlockTokens));
  return c;
}

/// Every expert that the arena has room for is resident afterwards.
Status warm_up(const PrivateBox& box) {
  MOESTRO_ASSIGN_OR_RETURN(
      auto client,
      store::StoreClient::attach(
          {.endpoint = box.endpoint(), .model = box.model(), .client = "bench store", .timeout = kProcessPatience}));
  return fetch_all(*client, experts_of(client->manifest())).status();
}

std::string request_of(const std::string& model, size_t client, int64_t prompt_tokens) {
  std::string body = R"({"model":")" + model + R"(","max_tokens":)" + std::to_string(kAnswerTokens) +
                     R"(,"ignore_eos":true,"prompt":[)" + std::to_string(client + 1);
  for (int64_t i = 1; i < prompt_tokens; ++i) body += "," + std::to_string(i % 64 + 1);
  return body + "]}";
}

/// A chunk of a prompt for each worker, all at once, as long as a step may be: every buffer is in use when they are
/// weighed. The prompts begin differently, so that none goes where another's keys and values are.
Status exercise(const PrivateBox& box, int64_t prompt_tokens) {
  Url url;
  url.host = "127.0.0.1";
  url.port = std::to_string(box.http_port());
  std::vector<Status> ends(box.workers());
  std::vector<std::thread> clients;
  for (size_t client = 0; client < ends.size(); ++client)
    clients.emplace_back([&, client] {
      Status& end = ends[client];
      const auto reply = HttpClient(url).post("/v1/completions", request_of(box.model(), client, prompt_tokens));
      end = !reply ? reply.status()
            : reply->status == 200
                ? Status::ok()
                : unavailable("a completion was answered with " + std::to_string(reply->status) + ": " + reply->body);
    });
  for (std::thread& client : clients) client.join();
  for (const Status& end : ends) MOESTRO_RETURN_IF_ERROR(end);
  return Status::ok();
}

Status add_second_worker(PrivateBox& box, uint64_t model_bytes, std::vector<StoreRow>& rows) {
  MOESTRO_ASSIGN_OR_RETURN(const auto before, store::query_store(box.endpoint(), kProcessPatience));
  MOESTRO_ASSIGN_OR_RETURN(const double seconds, box.start_worker(1));
  MOESTRO_ASSIGN_OR_RETURN(const auto after, store::query_store(box.endpoint(), kProcessPatience));
  const std::string how =
      "from its start until the orchestrator has it; model of " + config::readable_size(model_bytes);
  rows.push_back(at_most("second worker ready on a warm store", "s", seconds, 3, how));
  rows.push_back(at_most("read from the drive meanwhile", "bytes",
                         static_cast<double>(after.bytes_read - before.bytes_read), 0, how));
  return Status::ok();
}

Status add_memory(PrivateBox& box, const store::Manifest& manifest, std::vector<StoreRow>& rows) {
  for (size_t worker = 2; worker < box.workers(); ++worker) MOESTRO_RETURN_IF_ERROR(box.start_worker(worker).status());
  MOESTRO_ASSIGN_OR_RETURN(const Configured c, configured(manifest));
  MOESTRO_RETURN_IF_ERROR(exercise(box, c.prompt_tokens));
  MOESTRO_ASSIGN_OR_RETURN(const auto status, store::query_store(box.endpoint(), kProcessPatience));
  MOESTRO_ASSIGN_OR_RETURN(const ProcessMemory held, memory_of(box.processes(), box.arena_dir() / "arena"));
  const size_t processes = box.processes().size();
  const double grown = static_cast<double>(held.arena) - static_cast<double>(status.arena_bytes);
  const double beyond =
      static_cast<double>(held.rest) + std::max(grown, 0.0) - static_cast<double>(c.kv_bytes * box.workers());
  rows.push_back(
      at_most("memory of " + std::to_string(box.workers()) + " workers and store beyond the arena, a process", "MB",
              beyond * 1e-6 / static_cast<double>(processes), 60,
              config::readable_size(held.whole()) + " in " + std::to_string(processes) +
                  " processes (PSS, and pages of hugetlbfs once), " + config::readable_size(held.arena) +
                  " of it the arena; taken off: KV of " + std::to_string(kKvTokens) + " tokens, " +
                  config::readable_size(c.kv_bytes) + " a worker. The workspace of steps of " +
                  std::to_string(c.prompt_tokens) + " tokens is counted, though it is configured too"));
  return Status::ok();
}

/// kill -9 of the store, and a successor on its arena. A worker that was attached before uses an expert again, which
/// the successor has compared with its checksums by then.
Status add_adoption(PrivateBox& box, std::vector<StoreRow>& rows) {
  MOESTRO_ASSIGN_OR_RETURN(
      auto client,
      store::StoreClient::attach(
          {.endpoint = box.endpoint(), .model = box.model(), .client = "bench store", .timeout = kProcessPatience}));
  MOESTRO_ASSIGN_OR_RETURN(const auto before, store::query_store(box.endpoint(), kProcessPatience));
  const uint32_t expert = experts_of(client->manifest()).back();
  const auto begin = std::chrono::steady_clock::now();  // the dead store's memory is unmapped within it
  box.kill_store();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  MOESTRO_RETURN_IF_ERROR(box.start_store());
  while (client->resumed() == 0) MOESTRO_RETURN_IF_ERROR(client->check());
  if (!client->try_pin(expert)) MOESTRO_RETURN_IF_ERROR(fetch_all(*client, {&expert, 1}).status());
  const double used = seconds();
  MOESTRO_ASSIGN_OR_RETURN(auto status, store::query_store(box.endpoint(), kProcessPatience));
  const uint64_t bytes = status.adopted_bytes;
  while (status.unchecked > 0 && seconds() < 120) {
    MOESTRO_ASSIGN_OR_RETURN(status, store::query_store(box.endpoint(), kProcessPatience));
    std::this_thread::sleep_for(milliseconds(5));
  }
  StoreRow row =
      at_most("arena re-adopted after kill -9 of the store", "s", used, 5,
              "until a worker of before uses an expert again; " + config::readable_size(bytes) + " adopted of " +
                  config::readable_size(before.resident_bytes) + ", all of it compared with its checksums after " +
                  std::to_string(seconds()).substr(0, 4) + " s");
  if (bytes == 0) row.missing = "the arena was not adopted: the store's log says why";
  rows.push_back(row);
  return Status::ok();
}

}  // namespace

Status add_process_rows(const StoreBenchOptions& o, const store::Manifest& manifest, std::vector<StoreRow>& rows) {
  config::BoxConfig config;
  config.model.pack = o.pack;
  config.store.arena_dir = o.arena_dir;
  if (o.dram) config.store.dram = config::Bytes{*o.dram};
  config.workers.count = std::max<int64_t>(o.workers, 2);
  config.workers.kv_tokens = kKvTokens;
  config.orchestrator.http = "127.0.0.1:0";
  MOESTRO_ASSIGN_OR_RETURN(const auto box, PrivateBox::create(std::move(config)));
  uint64_t model_bytes = 0;
  for (const store::Blob& blob : manifest.blobs) model_bytes += blob.length;
  MOESTRO_RETURN_IF_ERROR(box->start_store());
  MOESTRO_RETURN_IF_ERROR(box->start_orchestrator());
  MOESTRO_RETURN_IF_ERROR(box->start_worker(0).status());
  MOESTRO_RETURN_IF_ERROR(warm_up(*box));
  MOESTRO_RETURN_IF_ERROR(add_second_worker(*box, model_bytes, rows));
  MOESTRO_RETURN_IF_ERROR(add_memory(*box, manifest, rows));
  return add_adoption(*box, rows);
}

}  // namespace moestro::cli
