#pragma once
// The table of docs/perf/serving.md: the aims of serving, each figure with its baseline from the same run.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "services/cli/bench/row.h"
#include "services/cli/bench/serve/serve_bench.h"

namespace moestro::cli {

struct TableOptions {
  int64_t rounds = 3;             ///< a ratio is the median of the rounds' ratios
  std::vector<std::string> only;  ///< of mixed, overload, beside, streams; empty: all
};

struct ServeTable {
  std::string model;
  std::vector<BenchRow> rows;
};

/// Uses the pack, the lengths, the number of requests, the seed and the box's settings of `options`. An error as soon
/// as one of its loads is interrupted.
Result<ServeTable> serve_table(const ServeBenchOptions& options, const TableOptions& table,
                               const BenchProgress& progress);

nlohmann::ordered_json table_json(const ServeTable& table);
std::string table_text(const ServeTable& table);

/// The context of a group of rows.
struct RowContext {
  const ServeBenchOptions& options;
  int64_t rounds = 1;
  std::function<void(const std::string&)> say;
};
/// Mixed lengths, compared with padded static batches.
Status add_mixed_rows(const RowContext& context, std::vector<BenchRow>& rows);
/// Arrivals above capacity.
Status add_overload_rows(const RowContext& context, std::vector<BenchRow>& rows);
/// Interactive requests during a saturating batch job.
Status add_beside_rows(const RowContext& context, std::vector<BenchRow>& rows);
/// Many streams and idle connections.
Status add_stream_rows(const RowContext& context, std::vector<BenchRow>& rows);

/// Runs a load of the table to its end, or returns an error.
Result<LoadRun> row_load(const RowContext& context, const LoadOptions& load, const std::vector<Arrival>& arrivals,
                         const std::string& what);
/// An error if a request failed or was refused, because the figure would then have no meaning.
Status all_answered(const LoadRun& run, const std::string& what);
double median(const std::vector<double>& values);

}  // namespace moestro::cli
