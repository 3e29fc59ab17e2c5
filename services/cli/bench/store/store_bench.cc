#include "services/cli/bench/store/store_bench.h"

#include <algorithm>

#include "common/config/units.h"
#include "services/cli/bench/store/fetch_rows.h"
#include "services/cli/bench/store/private_box.h"
#include "services/cli/bench/store/process_rows.h"
#include "store/client/status_client.h"
#include "store/machine/store_machine.h"

namespace moestro::cli {
namespace {

constexpr std::chrono::milliseconds kBenchPatience{60000};

/// Room for half of the experts: there is always one that is not resident, and 16 that are.
uint64_t half_of(const store::Manifest& manifest) {
  std::vector<store::MachineBlob> blobs;
  uint64_t experts = 0;
  for (const store::Blob& blob : manifest.blobs) {
    const bool dense = blob.kind == store::BlobKind::kDense;
    blobs.push_back({.dense = dense, .length = blob.length});
    if (!dense) experts += blob.length;
  }
  const uint64_t half = store::StoreMachine::arena_bytes_min(blobs) + experts / 2;
  return half / (2 << 20) * (2 << 20);
}

Status add_in_process_rows(const StoreBenchOptions& o, const store::Manifest& manifest, const BenchProgress& progress,
                           StoreBenchReport& report) {
  config::BoxConfig config;
  config.model.pack = o.pack;
  config.store.arena_dir = o.arena_dir;
  config.store.dram = config::Bytes{o.dram.value_or(half_of(manifest))};
  MOESTRO_ASSIGN_OR_RETURN(const auto box, PrivateBox::create(std::move(config)));
  progress(1, 4, "backing the arena");
  MOESTRO_RETURN_IF_ERROR(box->start_store());
  MOESTRO_ASSIGN_OR_RETURN(const auto reads, ColdReads::create(o.pack, manifest, box->arena_dir() / "arena",
                                                               static_cast<uint32_t>(o.depth)));
  const store::AttachOptions attach{
      .endpoint = box->endpoint(), .model = box->model(), .client = "bench store", .timeout = kBenchPatience};
  {
    MOESTRO_ASSIGN_OR_RETURN(const auto client, store::StoreClient::attach(attach));
    MOESTRO_ASSIGN_OR_RETURN(const auto status, store::query_store(box->endpoint(), kBenchPatience));
    report.reader = status.reader, report.arena = box->arena_explanation();
    report.arena_bytes = status.arena_bytes, report.huge_bytes = status.huge_bytes;
    report.slice_bytes = reads->slice_bytes_max(), report.read_ahead_bytes = reads->read_ahead_bytes(),
    report.registered = reads->registered();
    progress(2, 4, "fetching experts");
    MOESTRO_RETURN_IF_ERROR(add_fetch_rows(o, *client, *reads, report.rows));
  }
  progress(3, 4, "prefetching and pinning experts");
  MOESTRO_ASSIGN_OR_RETURN(const auto one, store::StoreClient::attach(attach));
  MOESTRO_ASSIGN_OR_RETURN(const auto two, store::StoreClient::attach(attach));
  MOESTRO_RETURN_IF_ERROR(add_prefetch_row(o, *one, *two, *reads, report.rows));
  return add_hit_rows(o, *one, *two, report.rows);
}

}  // namespace

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

Result<StoreBenchReport> bench_store(const StoreBenchOptions& o, const BenchProgress& progress) {
  StoreBenchReport report;
  progress(0, 4, "reading the manifest");
  MOESTRO_ASSIGN_OR_RETURN(const store::Manifest manifest, store::open_pack(o.pack));
  report.model = manifest.model_name;
  const std::vector<uint32_t> experts = experts_of(manifest);
  if (experts.size() < 2) return invalid_argument(o.pack + " has no experts to fetch");
  report.expert_bytes = manifest.blobs[experts.front()].length;
  if (o.only != "processes") MOESTRO_RETURN_IF_ERROR(add_in_process_rows(o, manifest, progress, report));
  progress(3, 4, "starting workers");
  if (o.only != "reads") MOESTRO_RETURN_IF_ERROR(add_process_rows(o, manifest, report.rows));
  progress(4, 4, "done");
  return report;
}

}  // namespace moestro::cli
