#pragma once
// Requests of OpenAI's Responses API as chats.

#include <functional>
#include <string>

#include "orchestrator/dialects/dialect.h"

namespace moestro::orchestrator {

/// A request that was read; its chat is made when what came before it is known.
struct ResponsesRequest {
  OpenAiRequest chat;  ///< without its messages
  RequestJson items;   ///< its own input
  RequestJson shown;   ///< what a response repeats of it, "model" not among it
  std::string instructions;
  std::string previous;  ///< the id of the response that it goes on from; empty: none
  bool store = true;
  size_t bytes = 0;  ///< of its body
};

std::variant<ResponsesRequest, ApiError> read_responses_request(const RequestJson& body, bool lenient);
/// The messages of the chat: instructions, what `context` (items) says, and the request's own input.
RequestJson responses_messages(const ResponsesRequest& request, const RequestJson& context);
std::string responses_error_body(const ApiError& error, const std::string& request_id);

}  // namespace moestro::orchestrator
