#pragma once
// What happened between two looks at a store.

#include <vector>

#include "store/client/status_client.h"

namespace moestro::cli {

struct StoreLook {
  store::StoreStatusReport status;
  double at_s = 0;  ///< any monotonic clock
};

/// Each per second. All zero where there is no earlier look, or another store has taken the place of the one before.
struct StoreRates {
  double seconds = 0;  ///< between the looks
  double hits = 0, misses = 0;
  double read_bytes = 0, loads = 0, evictions = 0, prefetches = 0, scrubbed_bytes = 0;
  double streamed_bytes = 0;  ///< of the bytes read: dense weights that take turns in memory
  struct Worker {
    double hits = 0, misses = 0;
  };
  std::vector<Worker> workers;       ///< as in the later look
  std::vector<double> drive_bytes;  ///< likewise
};

StoreRates rates_between(const StoreLook& before, const StoreLook& now);

/// Of what was wanted, the part that was there: 0 to 1; negative where nothing was wanted.
double hit_share(double hits, double misses);

/// Of the workers of one model: what each has counted since it attached.
struct ModelTraffic {
  uint64_t hits = 0, misses = 0;
};
ModelTraffic traffic_of(const store::StoreStatusReport& status, const std::string& model);

}  // namespace moestro::cli
