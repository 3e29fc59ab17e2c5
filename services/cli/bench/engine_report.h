#pragma once
// A benchmark of the engine as a table and as JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/bench/engine_bench.h"

namespace moestro::cli {

nlohmann::ordered_json engine_report_json(const EngineBenchOptions& options, const EngineBenchReport& report);
std::string engine_report_text(const EngineBenchOptions& options, const EngineBenchReport& report);

}  // namespace moestro::cli
