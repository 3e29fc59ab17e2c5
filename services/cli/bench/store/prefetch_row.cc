#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "services/cli/bench/store/fetch_rows.h"

namespace moestro::cli {
namespace {

constexpr int64_t kSamplesMin = 100;  ///< fewer have no 99th percentile
constexpr double kChunk = 1 << 20;

struct Latencies {
  std::vector<double> unloaded, loaded;  ///< ms
};

/// Prefetches one half of what is cold, and meanwhile fetches of the other half one at a time. A fetch counts while the last prefetch is not there.
Status add_round(store::StoreClient& demands, store::StoreClient& prefetches, uint64_t plan, std::vector<uint32_t> cold, Latencies& ms) {
  const auto middle = cold.begin() + static_cast<ptrdiff_t>(cold.size() / 2);
  const std::vector<uint32_t> ahead(cold.begin(), middle), wanted(middle, cold.end());
  const auto single = [&](uint32_t blob, std::vector<double>& into) -> Status {
    MOESTRO_ASSIGN_OR_RETURN(const double seconds, fetch_all(demands, {&blob, 1}));
    into.push_back(seconds * 1e3);
    return Status::ok();
  };
  const size_t each = wanted.size() / 2;
  for (size_t i = 0; i < each; ++i) MOESTRO_RETURN_IF_ERROR(single(wanted[i], ms.unloaded));
  MOESTRO_RETURN_IF_ERROR(prefetches.prefetch(ahead, {PlanId(plan), MoeLayerId(0)}));
  const auto under_way = [&] { return std::ranges::any_of(ahead, [&](uint32_t blob) { return !prefetches.try_pin(blob); }); };
  for (size_t i = each; i < wanted.size() && under_way(); ++i) {
    std::vector<double> one;
    MOESTRO_RETURN_IF_ERROR(single(wanted[i], one));
    if (under_way()) ms.loaded.push_back(one.front());
  }
  const MoeLayerId layers[] = {MoeLayerId(0)};
  return prefetches.drop_prefetches(PlanId(plan), layers);
}

}  // namespace

Status add_prefetch_row(const StoreBenchOptions& o, store::StoreClient& demands, store::StoreClient& prefetches, ColdReads& reads, std::vector<StoreRow>& rows) {
  std::mt19937 random(2);
  const uint64_t bytes = static_cast<uint64_t>(o.fetch_bytes);
  Latencies ms;
  std::vector<double> chunk_ms;
  uint64_t plan = 0;
  for (int64_t round = 0; round < 40 * o.rounds && static_cast<int64_t>(ms.loaded.size()) < std::max(kSamplesMin, 20 * o.rounds); ++round) {
    MOESTRO_ASSIGN_OR_RETURN(const std::vector<uint32_t> cold, cold_experts(demands, bytes, random));
    MOESTRO_RETURN_IF_ERROR(add_round(demands, prefetches, ++plan, cold, ms));
    MOESTRO_ASSIGN_OR_RETURN(const double seconds, reads.by_ring(cold));
    double sum = 0;
    for (const uint32_t blob : cold) sum += static_cast<double>(demands.manifest().blobs[blob].length);
    chunk_ms.push_back(seconds * 1e3 * kChunk / sum);
  }
  StoreRow row;
  row.what = "fetch of one expert while prefetches fill the drive, p99", row.unit = "ms";
  row.aim_kind = StoreRow::Aim::kAtMost;
  if (static_cast<int64_t>(ms.loaded.size()) < kSamplesMin) {
    row.missing = "only " + std::to_string(ms.loaded.size()) + " fetches met a prefetch under way; a larger pack has more";
    rows.push_back(row);
    return Status::ok();
  }
  const double unloaded = quantile(ms.unloaded, 0.99), chunk = quantile(chunk_ms, 0.5);
  row.value = quantile(ms.loaded, 0.99);
  row.baseline_name = "no prefetches, p99", row.baseline = unloaded, row.ratio = row.value / unloaded;
  row.aim = (unloaded + 2 * chunk) / unloaded;
  char text[200];
  std::snprintf(text, sizeof text, "%zu fetches, median %.3g ms, %zu without prefetches, median %.3g ms; the aim is two chunks of 1 MiB more, %.2g ms each on this drive",
                ms.loaded.size(), quantile(ms.loaded, 0.5), ms.unloaded.size(), quantile(ms.unloaded, 0.5), chunk);
  row.how = text;
  rows.push_back(row);
  return Status::ok();
}

}  // namespace moestro::cli
