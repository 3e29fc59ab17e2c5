// fuzz-deps: moestro_dialect_text
// Bodies of the three other APIs, up to the chat or completion that they become.

#include "orchestrator/dialects/llama_request.h"
#include "orchestrator/dialects/messages_request.h"
#include "orchestrator/dialects/responses_request.h"

namespace api = moestro::orchestrator;

namespace {

using api::ApiError;
using api::RequestJson;

api::LlamaTexts letters() {
  return {[](const std::string& text, bool, const char*) -> std::variant<std::vector<moestro::TokenId>, ApiError> {
            return std::vector<moestro::TokenId>(text.begin(), text.end());
          },
          [](const std::vector<moestro::TokenId>& ids) { return std::string(ids.size(), 'x'); }};
}

/// What is read of OpenAI's body has to be refused in the dialect's own words, or be a request.
void read_on(const api::OpenAiRequest& request, api::ErrorBody error_body) {
  const auto read = request.chat ? api::read_chat(request.body) : api::read_completion(request.body);
  if (const auto* error = std::get_if<ApiError>(&read)) (void)error_body(*error, "r");
}

void try_one(const std::variant<api::Translated, ApiError>& read, api::ErrorBody error_body) {
  if (const auto* error = std::get_if<ApiError>(&read)) return (void)error_body(*error, "r");
  read_on(std::get<api::Translated>(read).request, error_body);
}

void try_responses(const RequestJson& object, bool lenient) {
  auto read = api::read_responses_request(object, lenient);
  if (const auto* error = std::get_if<ApiError>(&read)) return (void)api::responses_error_body(*error, "r");
  auto& request = std::get<api::ResponsesRequest>(read);
  request.chat.body["messages"] = api::responses_messages(request, request.items);
  read_on(request.chat, api::responses_error_body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = api::parse_body(std::string(reinterpret_cast<const char*>(data), size));
  if (std::holds_alternative<ApiError>(body)) return 0;
  const auto& object = std::get<RequestJson>(body);
  for (const bool lenient : {false, true}) {
    try_one(api::read_messages_request(object, lenient), api::messages_error_body);
    try_one(api::read_messages_request(object, lenient, /*counts=*/true), api::messages_error_body);
    try_one(api::read_llama_request(object, lenient, letters()), api::llama_error_body);
    try_responses(object, lenient);
  }
  return 0;
}
