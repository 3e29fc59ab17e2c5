// fuzz-deps: moestro_api_requests
// The body of a completion or chat request, up to where its text becomes tokens.

#include "orchestrator/api/completion_request.h"

namespace api = moestro::orchestrator;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = api::parse_body(std::string(reinterpret_cast<const char*>(data), size));
  if (const auto* error = std::get_if<api::ApiError>(&body)) {
    (void)error->body();
    return 0;
  }
  const auto& object = std::get<nlohmann::json>(body);
  for (const auto& read : {api::read_completion(object), api::read_chat(object)})
    if (const auto* error = std::get_if<api::ApiError>(&read)) (void)error->body();
  return 0;
}
