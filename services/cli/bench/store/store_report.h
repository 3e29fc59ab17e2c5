#pragma once
// A benchmark of the store as a table and as JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/bench/store/store_bench.h"

namespace moestro::cli {

/// A list of rows {what, value, unit, baseline, ratio, aim, ...}.
nlohmann::ordered_json store_report_json(const StoreBenchReport& report);
std::string store_report_text(const StoreBenchReport& report);

}  // namespace moestro::cli
