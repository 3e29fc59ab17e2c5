#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "services/cli/bench/store/fetch_rows.h"

namespace moestro::cli {
namespace {

constexpr size_t kSamples = 100;  ///< in a round; fewer have no 99th percentile
constexpr size_t kTriesMax =
    kSamples;  ///< of filling a round: one of them gives one fetch at least, where enough is fetched at once
constexpr size_t kTimed = 8;  ///< experts that a bare ring reads in a round, to say what a chunk takes
constexpr double kChunk = 1 << 20;
constexpr Nanos kDue = std::chrono::minutes(1);  ///< of what is read ahead: longer than a round

struct Latencies {
  std::vector<double> unloaded, loaded;  ///< ms
};

/// Has one half of what is cold read ahead, and meanwhile fetches of the other half one at a time. A fetch counts while
/// the last read ahead is not there.
Status add_round(store::StoreClient& demands, store::StoreClient& prefetches, std::vector<uint32_t> cold,
                 Latencies& ms) {
  const auto middle =
      cold.begin() + static_cast<ptrdiff_t>(std::min(cold.size() / 2, store::Outlook::kExpertsMax));
  const std::vector<uint32_t> ahead(cold.begin(), middle), wanted(middle, cold.end());
  const auto single = [&](uint32_t blob, std::vector<double>& into) -> Status {
    MOESTRO_ASSIGN_OR_RETURN(const double seconds, fetch_all(demands, {&blob, 1}));
    into.push_back(seconds * 1e3);
    return Status::ok();
  };
  const size_t each = wanted.size() / 2;
  for (size_t i = 0; i < each; ++i) MOESTRO_RETURN_IF_ERROR(single(wanted[i], ms.unloaded));
  std::vector<store::Foreseen> outlook;
  for (const uint32_t blob : ahead) outlook.push_back({blob, 1, kDue});
  MOESTRO_RETURN_IF_ERROR(prefetches.foresee({.experts = outlook, .scan = true}));  // a scan has no limit but its room
  const auto under_way = [&] {
    return std::ranges::any_of(ahead, [&](uint32_t blob) { return !prefetches.try_pin(blob); });
  };
  for (size_t i = each; i < wanted.size() && under_way(); ++i) {
    std::vector<double> one;
    MOESTRO_RETURN_IF_ERROR(single(wanted[i], one));
    if (under_way()) ms.loaded.push_back(one.front());
  }
  return prefetches.foresee({});
}

}  // namespace

Status add_prefetch_row(const StoreBenchOptions& o, store::StoreClient& demands, store::StoreClient& prefetches,
                        ColdReads& reads, std::vector<StoreRow>& rows) {
  StoreRow row;
  row.what = "fetch of one expert while prefetches fill the drive, p99", row.unit = "ms";
  row.aim_kind = StoreRow::Aim::kAtMost;
  std::mt19937 random(2);
  // Half of it is read ahead as a scan, which takes at most a quarter of the room.
  const uint64_t bytes = std::min<uint64_t>(static_cast<uint64_t>(o.fetch_bytes), demands.memory().size() / 4);
  std::vector<double> loaded, unloaded, ratios, loaded_median, unloaded_median, chunk_ms;
  for (int64_t round = 0; round < o.rounds; ++round) {
    Latencies ms;
    for (size_t tries = 0; tries < kTriesMax && ms.loaded.size() < kSamples; ++tries) {
      MOESTRO_ASSIGN_OR_RETURN(const std::vector<uint32_t> cold, cold_experts(demands, bytes, random));
      MOESTRO_RETURN_IF_ERROR(add_round(demands, prefetches, cold, ms));
    }
    if (ms.loaded.size() < kSamples) {
      row.missing = "only " + std::to_string(ms.loaded.size()) +
                    " fetches of a round met a prefetch under way; a larger --fetch, or a larger pack, has more";
      rows.push_back(row);
      return Status::ok();
    }
    std::vector<store::Lease> held;
    MOESTRO_ASSIGN_OR_RETURN(std::vector<uint32_t> cold,
                             cold_experts(demands, std::min(bytes, demands.share_bytes()), random));
    cold.resize(std::min(cold.size(), kTimed));
    MOESTRO_RETURN_IF_ERROR(fetch_all(demands, cold, &held).status());
    MOESTRO_ASSIGN_OR_RETURN(const double seconds, reads.by_ring(held, demands.memory()));
    chunk_ms.push_back(seconds * 1e3 * kChunk / static_cast<double>(bytes_of(demands.manifest(), cold)));
    loaded.push_back(quantile(ms.loaded, 0.99)), unloaded.push_back(quantile(ms.unloaded, 0.99));
    ratios.push_back(loaded.back() / unloaded.back());
    loaded_median.push_back(quantile(ms.loaded, 0.5)), unloaded_median.push_back(quantile(ms.unloaded, 0.5));
  }
  const double chunk = quantile(chunk_ms, 0.5);
  row.value = quantile(loaded, 0.5);
  row.baseline_name = "no prefetches, p99", row.baseline = quantile(unloaded, 0.5), row.ratio = quantile(ratios, 0.5);
  row.aim = (row.baseline + 2 * chunk) / row.baseline;
  char text[200];
  std::snprintf(text, sizeof text,
                "at least %zu fetches in each of %zu rounds, median %.3g ms, without prefetches %.3g ms; the aim is "
                "two chunks of 1 MiB more, %.2g ms each on this drive",
                kSamples, loaded.size(), quantile(loaded_median, 0.5), quantile(unloaded_median, 0.5), chunk);
  row.how = text;
  rows.push_back(row);
  return Status::ok();
}

}  // namespace moestro::cli
