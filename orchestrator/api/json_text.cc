#include "orchestrator/api/json_text.h"

#include <nlohmann/json.hpp>

namespace moestro::orchestrator {

std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace moestro::orchestrator
