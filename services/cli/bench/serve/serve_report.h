#pragma once
// Loads as text and as JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/bench/serve/serve_bench.h"

namespace moestro::cli {

nlohmann::ordered_json serve_report_json(const ServeBenchOptions& options, const ServeBenchReport& report);
std::string serve_report_text(const ServeBenchOptions& options, const ServeBenchReport& report);

}  // namespace moestro::cli
