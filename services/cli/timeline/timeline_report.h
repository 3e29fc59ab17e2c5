#pragma once
// A timeline's summary as text and JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/timeline/timeline_summary.h"

namespace moestro::cli {

nlohmann::json timeline_json(const TimelineSummary& summary);
std::string timeline_text(const TimelineSummary& summary);

}  // namespace moestro::cli
