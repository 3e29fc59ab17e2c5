#pragma once
// A store's figures as JSON: `moestro store list --json`, `moestro top --json`.

#include <nlohmann/json_fwd.hpp>

#include "store/client/status_client.h"

namespace moestro::cli {

nlohmann::json status_json(const store::StoreStatusReport& status);

}  // namespace moestro::cli
