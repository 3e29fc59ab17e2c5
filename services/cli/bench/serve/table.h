#pragma once
// The table of docs/perf/serving.md: what is promised of serving, each figure beside its baseline in one run.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "services/cli/bench/row.h"
#include "services/cli/bench/serve/serve_bench.h"

namespace moestro::cli {

struct TableOptions {
  int64_t rounds = 3;             ///< a ratio is the median of theirs
  std::vector<std::string> only;  ///< of mixed, overload, beside, streams; empty: all
};

struct ServeTable {
  std::string model;
  std::vector<BenchRow> rows;
};

/// Of `options` the pack, the lengths, the count of requests, the seed and what boxes are made with. An error as soon
/// as one of its loads is interrupted.
Result<ServeTable> serve_table(const ServeBenchOptions& options, const TableOptions& table,
                               const BenchProgress& progress);

nlohmann::ordered_json table_json(const ServeTable& table);
std::string table_text(const ServeTable& table);

/// What a group of rows is measured with.
struct RowContext {
  const ServeBenchOptions& options;
  int64_t rounds = 1;
  std::function<void(const std::string&)> say;
};
/// Mixed lengths beside padded static batches.
Status add_mixed_rows(const RowContext& context, std::vector<BenchRow>& rows);
/// Arrivals above capacity.
Status add_overload_rows(const RowContext& context, std::vector<BenchRow>& rows);
/// Interactive requests beside a saturating batch job.
Status add_beside_rows(const RowContext& context, std::vector<BenchRow>& rows);
/// Many streams and idle connections.
Status add_stream_rows(const RowContext& context, std::vector<BenchRow>& rows);

/// A load of the table: run to its end, or an error.
Result<LoadRun> row_load(const RowContext& context, const LoadOptions& load, const std::vector<Arrival>& arrivals,
                         const std::string& what);
/// An error if a request failed or was refused: then a figure would say nothing.
Status all_answered(const LoadRun& run, const std::string& what);
double median(const std::vector<double>& values);

}  // namespace moestro::cli
