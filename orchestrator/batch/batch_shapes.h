#pragma once
// The JSON of files and batches, and of requests for them. Pure functions.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "orchestrator/api/api_error.h"
#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

/// What went wrong in the state or with a file: as from_status(), but 507 if a disk or memory is full, which may last,
/// and 409 for what is in use or was changed by another host.
ApiError error_of_state(const Status& status);

nlohmann::json file_json(const FileRecord& file);
nlohmann::json batch_json(const BatchRecord& batch);
/// {"object": "list", "data", "first_id", "last_id", "has_more"}
nlohmann::json list_json(std::vector<nlohmann::json> items, bool has_more);

/// The body of POST /v1/batches. id, model and times are not set, except output_seconds.
struct BatchOrder {
  BatchRecord record;
  int64_t window_seconds = 0;
};
std::variant<BatchOrder, ApiError> read_batch_order(const std::string& body);
/// The body of POST /v1/batches/ID/cancel, which may be empty: whether the results are dropped.
std::variant<bool, ApiError> read_cancel_order(const std::string& body);

/// ?after=ID&limit=N, and for files &order=asc|desc&purpose=P.
std::variant<ListQuery, ApiError> read_list_query(const std::string& query, bool of_files);

}  // namespace moestro::orchestrator
