#pragma once
// What requests to encoder-decoder models may ask for, and what requests to others may not.

#include <optional>

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/served_model.h"

namespace moestro::orchestrator {

/// Refuses `what` ("chats") of a model that has an encoder.
std::optional<ApiError> refuse_with_encoder(const ServedModel& model, const char* what);
/// Refuses fields by name that the model has no use for.
std::optional<ApiError> check_target_fields(const CompletionRequest& request, const ServedModel& model);

}  // namespace moestro::orchestrator
