#include "services/cli/bench/store/process_rows.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "common/config/units.h"
#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "services/cli/bench/store/fetch_rows.h"
#include "services/cli/bench/store/private_box.h"
#include "services/cli/http_client.h"
#include "store/client/status_client.h"

namespace moestro::cli {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kKvTokens = 2048;
constexpr milliseconds kPatience{60000};

StoreRow at_most(std::string what, std::string unit, double value, double aim, std::string how) {
  StoreRow r;
  r.what = std::move(what), r.unit = std::move(unit), r.value = value;
  r.aim_kind = StoreRow::Aim::kAtMost, r.aim = aim, r.how = std::move(how);
  return r;
}

/// As large as one worker's cache of kKvTokens is.
Result<uint64_t> kv_bytes(const store::Manifest& manifest) {
  MOESTRO_ASSIGN_OR_RETURN(const auto description, model::describe_model(manifest.config_json, manifest.generation_config_json));
  int64_t bytes = 0;
  for (const model::LayerSpec& layer : description.spec.layers)
    bytes += kernels::kv_block_bytes({.kv_heads = layer.kv.heads, .head_dim = layer.kv.head_dim}, DType::kF32) * (kKvTokens / kernels::kKvBlockTokens);
  return static_cast<uint64_t>(bytes);
}

/// Every expert that the arena has room for is resident afterwards.
Status warm_up(const PrivateBox& box) {
  MOESTRO_ASSIGN_OR_RETURN(auto client, store::StoreClient::attach({.endpoint = box.endpoint(), .model = box.model(), .client = "bench store", .timeout = kPatience}));
  return fetch_all(*client, experts_of(client->manifest())).status();
}

/// A short answer from each worker, two requests for each at once, so that buffers are in use when they are weighed.
Status exercise(const PrivateBox& box) {
  Url url;
  url.host = "127.0.0.1";
  url.port = std::to_string(box.http_port());
  const std::string body = R"({"model":")" + box.model() + R"(","prompt":[1,2,3,4,5,6,7,8],"max_tokens":8,"ignore_eos":true})";
  std::vector<Status> ends(2 * box.workers());
  std::vector<std::thread> clients;
  for (Status& end : ends)
    clients.emplace_back([&] {
      const auto reply = HttpClient(url).post("/v1/completions", body);
      end = !reply ? reply.status() : reply->status == 200 ? Status::ok() : unavailable("a completion was answered with " + std::to_string(reply->status) + ": " + reply->body);
    });
  for (std::thread& client : clients) client.join();
  for (const Status& end : ends) MOESTRO_RETURN_IF_ERROR(end);
  return Status::ok();
}

Status add_second_worker(PrivateBox& box, uint64_t model_bytes, std::vector<StoreRow>& rows) {
  MOESTRO_ASSIGN_OR_RETURN(const auto before, store::query_store(box.endpoint(), kPatience));
  MOESTRO_ASSIGN_OR_RETURN(const double seconds, box.start_worker(1));
  MOESTRO_ASSIGN_OR_RETURN(const auto after, store::query_store(box.endpoint(), kPatience));
  const std::string how = "from its start until the orchestrator has it; model of " + config::readable_size(model_bytes);
  rows.push_back(at_most("second worker ready on a warm store", "s", seconds, 3, how));
  rows.push_back(at_most("read from the drive meanwhile", "bytes", static_cast<double>(after.bytes_read - before.bytes_read), 0, how));
  return Status::ok();
}

Status add_memory(PrivateBox& box, const store::Manifest& manifest, std::vector<StoreRow>& rows) {
  for (size_t worker = 2; worker < box.workers(); ++worker) MOESTRO_RETURN_IF_ERROR(box.start_worker(worker).status());
  MOESTRO_RETURN_IF_ERROR(exercise(box));
  MOESTRO_ASSIGN_OR_RETURN(const auto status, store::query_store(box.endpoint(), kPatience));
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t whole, memory_of(box.processes()));
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t kv, kv_bytes(manifest));
  const size_t processes = box.processes().size();
  const double beyond = static_cast<double>(whole) - static_cast<double>(status.arena_bytes + kv * box.workers());
  rows.push_back(at_most("memory of " + std::to_string(box.workers()) + " workers and store beyond the arena, a process", "MB", beyond * 1e-6 / static_cast<double>(processes), 60,
                         config::readable_size(whole) + " in " + std::to_string(processes) + " processes (PSS, and pages of hugetlbfs once); arena " +
                             config::readable_size(status.arena_bytes) + ", KV " + config::readable_size(kv) + " a worker"));
  return Status::ok();
}

/// kill -9 of the store, and a successor on its arena. A worker that was attached before uses an expert again, which the successor has compared with its
/// checksums by then.
Status add_adoption(PrivateBox& box, std::vector<StoreRow>& rows) {
  MOESTRO_ASSIGN_OR_RETURN(auto client, store::StoreClient::attach({.endpoint = box.endpoint(), .model = box.model(), .client = "bench store", .timeout = kPatience}));
  MOESTRO_ASSIGN_OR_RETURN(const auto before, store::query_store(box.endpoint(), kPatience));
  const uint32_t expert = experts_of(client->manifest()).back();
  box.kill_store();
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  MOESTRO_RETURN_IF_ERROR(box.start_store());
  while (client->resumed() == 0) MOESTRO_RETURN_IF_ERROR(client->check());
  if (!client->try_pin(expert)) MOESTRO_RETURN_IF_ERROR(fetch_all(*client, {&expert, 1}).status());
  const double used = seconds();
  MOESTRO_ASSIGN_OR_RETURN(auto status, store::query_store(box.endpoint(), kPatience));
  const uint64_t bytes = status.adopted_bytes;
  while (status.unchecked > 0 && seconds() < 120) {
    MOESTRO_ASSIGN_OR_RETURN(status, store::query_store(box.endpoint(), kPatience));
    std::this_thread::sleep_for(milliseconds(5));
  }
  StoreRow row = at_most("arena re-adopted after kill -9 of the store", "s", used, 5,
                         "until a worker of before uses an expert again; " + config::readable_size(bytes) + " adopted of " + config::readable_size(before.resident_bytes) + ", all of it compared with its checksums after " +
                             std::to_string(seconds()).substr(0, 4) + " s");
  if (bytes == 0) row.missing = "the arena was not adopted: the store's log says why";
  rows.push_back(row);
  return Status::ok();
}

}  // namespace

Result<uint64_t> memory_of(std::span<const pid_t> processes) {
  uint64_t kib = 0, shared_huge = 0;
  for (const pid_t pid : processes) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/smaps_rollup");
    bool known = false;
    for (std::string line; std::getline(in, line);) {
      unsigned long n = 0;
      if (std::sscanf(line.c_str(), "Pss: %lu", &n) == 1) kib += n, known = true;
      if (std::sscanf(line.c_str(), "Private_Hugetlb: %lu", &n) == 1) kib += n;
      if (std::sscanf(line.c_str(), "Shared_Hugetlb: %lu", &n) == 1) shared_huge = std::max<uint64_t>(shared_huge, n);
    }
    if (!known) return unavailable("/proc/" + std::to_string(pid) + "/smaps_rollup cannot be read");
  }
  return (kib + shared_huge) << 10;
}

Status add_process_rows(const StoreBenchOptions& o, const store::Manifest& manifest, std::vector<StoreRow>& rows) {
  config::BoxConfig config;
  config.model.pack = o.pack;
  config.store.arena_dir = o.arena_dir;
  if (o.dram) config.store.dram = config::Bytes{*o.dram};
  config.workers.count = std::max<int64_t>(o.workers, 2);
  config.workers.kv_tokens = kKvTokens;
  config.orchestrator.http = "127.0.0.1:0";
  MOESTRO_ASSIGN_OR_RETURN(const auto box, PrivateBox::create(std::move(config), 0));
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
