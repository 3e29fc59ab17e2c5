#include "orchestrator/api/api_error.h"

#include <nlohmann/json.hpp>

namespace moestro::orchestrator {

std::string ApiError::body() const {
  nlohmann::json error{{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  if (!param.empty()) error["param"] = param;
  if (!code.empty()) error["code"] = code;
  if (n_prompt_tokens) error["n_prompt_tokens"] = *n_prompt_tokens;
  if (n_ctx) error["n_ctx"] = *n_ctx;
  return nlohmann::json{{"error", std::move(error)}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ApiError bad_request(std::string message, std::string param) {
  ApiError e;
  e.http_status = 400;
  e.type = "invalid_request_error";
  e.message = std::move(message);
  e.param = std::move(param);
  return e;
}

ApiError exceeds_context(std::string message, std::string param, int64_t tokens, int64_t context) {
  ApiError e = bad_request(std::move(message), std::move(param));
  e.type = "exceed_context_size_error";
  e.n_prompt_tokens = tokens;
  e.n_ctx = context;
  return e;
}

ApiError not_supported(const std::string& param, const std::string& what) {
  ApiError e = bad_request("'" + param + "': " + what, param);
  e.code = "unsupported_parameter";
  return e;
}

ApiError not_here(const std::string& what, const std::string& id, const std::string& param) {
  ApiError e = bad_request("there is no " + what + " '" + id.substr(0, 80) + "'", param);
  e.http_status = 404;
  e.type = "not_found_error";
  e.code = "not_found";
  return e;
}

ApiError wrong_method(const std::string& path, const std::string& method, const std::string& allowed) {
  ApiError e = bad_request(path + " takes " + allowed + ", not " + method);
  e.http_status = 405;
  return e;
}

ApiError from_status(const Status& status) {
  ApiError e;
  e.message = status.message();
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kUnsupported: return bad_request(status.message());
    case Code::kNotFound:
      e.http_status = 404;
      e.type = "not_found_error";
      break;
    case Code::kExhausted:
      e.http_status = 429;
      e.type = "rate_limit_error";
      break;
    case Code::kUnavailable:
      e.http_status = 503;
      e.type = "unavailable_error";
      break;
    default: break;
  }
  return e;
}

}  // namespace moestro::orchestrator
