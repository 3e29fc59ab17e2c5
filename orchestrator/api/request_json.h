#pragma once
// JSON of requests. Objects keep the order of their keys, for chat templates print messages and arguments in it.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>

#include "orchestrator/api/api_error.h"

namespace moestro::orchestrator {

using RequestJson = nlohmann::ordered_json;

/// `body` as an object, or why not: not UTF-8, not JSON, not an object, nested deeper than 64 levels, a key given twice
/// in one object. `what` it is called in errors.
std::variant<RequestJson, ApiError> parse_body(const std::string& body, const std::string& what = "the body");

}  // namespace moestro::orchestrator
