#include "services/cli/top/rates.h"

#include <algorithm>

namespace moestro::cli {

StoreRates rates_between(const StoreLook& before, const StoreLook& now) {
  StoreRates r;
  const auto& a = before.status;
  const auto& b = now.status;
  r.workers.resize(b.workers.size());
  r.drive_bytes.resize(b.reading.drives.size());
  r.seconds = now.at_s - before.at_s;
  if (a.epoch != b.epoch || r.seconds <= 0) {
    r.seconds = 0;
    return r;
  }
  const auto per_second = [&r](uint64_t from, uint64_t to) {
    return to > from ? static_cast<double>(to - from) / r.seconds : 0.0;
  };
  r.hits = per_second(a.reading.hits, b.reading.hits), r.misses = per_second(a.reading.misses, b.reading.misses);
  r.read_bytes = per_second(a.bytes_read, b.bytes_read);
  r.loads = per_second(a.loads, b.loads), r.evictions = per_second(a.evictions, b.evictions);
  r.prefetches = per_second(a.reading.prefetches, b.reading.prefetches);
  r.streamed_bytes = per_second(a.streamed_loaded_bytes, b.streamed_loaded_bytes);
  r.scrubbed_bytes = per_second(a.reading.scrubbed_bytes, b.reading.scrubbed_bytes);
  for (size_t i = 0; i < b.workers.size(); ++i) {
    const auto& w = b.workers[i];
    const auto was = std::ranges::find_if(
        a.workers, [&](const auto& other) { return other.slot == w.slot && other.client == w.client; });
    if (was != a.workers.end()) r.workers[i] = {per_second(was->hits, w.hits), per_second(was->misses, w.misses)};
  }
  for (size_t i = 0; i < std::min(a.reading.drives.size(), b.reading.drives.size()); ++i)
    r.drive_bytes[i] = per_second(a.reading.drives[i].bytes_read, b.reading.drives[i].bytes_read);
  return r;
}

double hit_share(double hits, double misses) { return hits + misses > 0 ? hits / (hits + misses) : -1; }

ModelTraffic traffic_of(const store::StoreStatusReport& status, const std::string& model) {
  ModelTraffic sum;
  for (const auto& worker : status.workers)
    if (worker.model == model) sum.hits += worker.hits, sum.misses += worker.misses;
  return sum;
}

}  // namespace moestro::cli
