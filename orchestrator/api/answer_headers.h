#pragma once
// Headers that answers of several routes have, and refusals.

#include <memory>
#include <string>
#include <vector>

#include "orchestrator/api/api_error.h"
#include "orchestrator/control/control_plane.h"
#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

/// Adds `what`, each once, joined by "; " and made printable, unless it is empty.
void add_list(Headers& headers, const char* name, const std::vector<std::string>& what);
/// Names the fields of a request that were ignored, if there are any.
void add_ignored(Headers& headers, const std::vector<std::string>& fields);

/// When a request that was refused so may be sent again, unless it should not.
void add_retry_after(Headers& headers, const ApiError& error);

/// Answers with the error, in OpenAI's shape.
void refuse(const std::shared_ptr<Exchange>& exchange, const ApiError& error, Headers headers = {});

/// Of a request that failed after it was read: when, and whether, it is to be sent again. A 429 counts as refused by
/// `control`, whose queue was full.
Headers failure_headers(const ApiError& error, ControlPlane& control, bool quarantined);

}  // namespace moestro::orchestrator
