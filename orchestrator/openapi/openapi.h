#pragma once
// The description of the API, for programs.

#include <string>

namespace moestro::orchestrator {

/// The OpenAPI 3.1 document of everything that is served, as JSON. `version`: of this program.
std::string openapi_document(const std::string& version);

}  // namespace moestro::orchestrator
