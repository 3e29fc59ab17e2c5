#pragma once
// Errors as clients see them: OpenAI's error object.

#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"

namespace moestro::orchestrator {

struct ApiError {
  int http_status = 500;
  std::string type = "server_error";
  std::string message;
  std::string param;  ///< the field at fault; empty: none
  std::string code;   ///< a word for programs; empty: none
  std::optional<int64_t> n_prompt_tokens, n_ctx;  ///< of exceed_context_size_error

  /// {"error": {"message", "type", "param", "code", ...}}
  std::string body() const;
};

ApiError bad_request(std::string message, std::string param = "");
/// exceed_context_size_error: `tokens` are more than the context has room for.
ApiError exceeds_context(std::string message, std::string param, int64_t tokens, int64_t context);
ApiError not_supported(const std::string& param, const std::string& what);
/// 404: there is no `what` of this id, or it is another project's.
ApiError not_here(const std::string& what, const std::string& id, const std::string& param = "id");
/// 405: `path` takes `allowed`, not `method`.
ApiError wrong_method(const std::string& path, const std::string& method, const std::string& allowed);
/// What went wrong in operation, with the HTTP status that its code means.
ApiError from_status(const Status& status);

}  // namespace moestro::orchestrator
