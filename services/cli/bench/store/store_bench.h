#pragma once
// What the store costs compared with the drive and the memory alone: each figure with its baseline, measured in turns
// in one run.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "services/cli/bench/engine_bench.h"
#include "services/cli/bench/row.h"

namespace moestro::cli {

struct StoreBenchOptions {
  std::string pack;
  std::string arena_dir;              ///< empty: where `moestro up` would put it
  std::optional<uint64_t> dram;  ///< nullopt: half of the experts for fetches, so that there is always one to fetch,
                                 ///< and the store's own choice for workers
  int64_t workers = 4;                ///< number of workers whose memory is measured
  int64_t rounds = 7;
  int64_t depth = 8;                  ///< reads in flight of the baseline
  int64_t fetch_bytes = int64_t{1} << 30;  ///< fetched in a round, at most a quarter of the experts
  int64_t singles = 32;                ///< fetched one by one in a round
  std::string only;                   ///< rows whose name contains this; empty: all
};

using StoreRow = BenchRow;

struct StoreBenchReport {
  std::string model, reader, arena;
  uint64_t arena_bytes = 0, huge_bytes = 0, slice_bytes = 0, read_ahead_bytes = 0, expert_bytes = 0;
  bool registered = false;
  std::vector<StoreRow> rows;
};

Result<StoreBenchReport> bench_store(const StoreBenchOptions& options, const BenchProgress& progress);

/// A quantile of an unsorted list that is not empty; `share` 0.5: the median.
double quantile(std::vector<double> values, double share);

}  // namespace moestro::cli
