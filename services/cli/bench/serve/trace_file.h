#pragma once
// Recorded arrivals in two published formats: Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) and Mooncake's JSON
// lines ({"timestamp": ms, "input_length", "output_length", "hash_ids"}).

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/status.h"
#include "services/cli/bench/serve/arrivals.h"

namespace moestro::cli {

struct TraceOptions {
  double speed = 1;         ///< 2: gaps half as long
  double lengths = 1;       ///< factor of prompts and outputs, rounded, at least one token each
  int64_t count_max = 0;    ///< 0: all
};

/// In the order of their times; the first is due at once. An error names the file, the line and the problem.
Result<std::vector<Arrival>> read_trace(const std::filesystem::path& file, const TraceOptions& options);

}  // namespace moestro::cli
