// fuzz-deps: moestro_api_requests
// The body of a completion, chat or (de)tokenize request, up to where its text becomes tokens.

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/tokenize_request.h"

namespace api = moestro::orchestrator;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = api::parse_body(std::string(reinterpret_cast<const char*>(data), size));
  if (const auto* error = std::get_if<api::ApiError>(&body)) {
    (void)error->body();
    return 0;
  }
  const auto& object = std::get<api::RequestJson>(body);
  for (const auto& read : {api::read_completion(object), api::read_chat(object)})
    if (const auto* error = std::get_if<api::ApiError>(&read)) (void)error->body();
  const auto tokenize = api::read_tokenize(object);
  if (const auto* error = std::get_if<api::ApiError>(&tokenize)) (void)error->body();
  const auto detokenize = api::read_detokenize(object, 1000);
  if (const auto* error = std::get_if<api::ApiError>(&detokenize)) (void)error->body();
  return 0;
}
