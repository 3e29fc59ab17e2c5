#pragma once
// Requests of Anthropic's Messages API as chats.

#include "orchestrator/dialects/dialect.h"

namespace moestro::orchestrator {

/// `counts`: the request only asks for the number of its tokens, so max_tokens may be missing.
std::variant<Translated, ApiError> read_messages_request(const RequestJson& body, bool lenient, bool counts = false);
std::string messages_error_body(const ApiError& error, const std::string& request_id);

}  // namespace moestro::orchestrator
