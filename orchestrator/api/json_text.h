#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace moestro::orchestrator {

/// Text for the wire. Invalid UTF-8 cannot occur in it, and would be replaced.
std::string dump(const nlohmann::json& value);

}  // namespace moestro::orchestrator
