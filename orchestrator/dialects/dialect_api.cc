#include "orchestrator/dialects/dialect_api.h"

#include "orchestrator/dialects/llama_request.h"
#include "orchestrator/dialects/messages_request.h"
#include "orchestrator/dialects/translated_exchange.h"

namespace moestro::orchestrator {

namespace {

constexpr std::string_view kMessages = "/v1/messages", kCountTokens = "/v1/messages/count_tokens",
                           kCompletion = "/completion";

/// Reads a body; from any thread.
using ReadDialect = std::function<std::variant<Translated, ApiError>(const RequestJson& body, const std::stop_token&)>;

struct DialectRoute {
  ErrorBody error_body;
  ReadDialect read;
  bool counts = false;
};

/// Its answer goes into `slot`.
Service::Make make_with(ReadDialect read, TranslatedExchange::Slot slot) {
  return [read = std::move(read), slot = std::move(slot)](
             const HttpRequest& http, const std::stop_token& stop) -> std::variant<OpenAiRequest, ApiError> {
    const auto body = parse_body(http.body);
    if (const auto* error = std::get_if<ApiError>(&body)) return *error;
    auto translated = read(std::get<RequestJson>(body), stop);
    if (auto* error = std::get_if<ApiError>(&translated)) return std::move(*error);
    *slot = std::move(std::get<Translated>(translated).answer);
    return std::move(std::get<Translated>(translated).request);
  };
}

ReadDialect read_llama_with(const Service& service, bool lenient) {
  return [&service, lenient](const RequestJson& body, const std::stop_token& stop) {
    const LlamaTexts texts{[&](const std::string& text, bool add_special_tokens, const char* field) {
                             return service.encode(text, add_special_tokens, field, stop);
                           },
                           [&service](const std::vector<TokenId>& ids) { return service.decode(ids); },
                           service.has_encoder()};
    return read_llama_request(body, lenient, texts);
  };
}

std::optional<DialectRoute> dialect_route(const std::string& path, const Service& service, bool lenient) {
  if (path == kCompletion) return DialectRoute{llama_error_body, read_llama_with(service, lenient)};
  const bool counts = path == kCountTokens;
  if (path != kMessages && !counts) return std::nullopt;
  const auto read = [lenient, counts](const RequestJson& body, const std::stop_token&) {
    return read_messages_request(body, lenient, counts);
  };
  return DialectRoute{messages_error_body, read, counts};
}

}  // namespace

std::string error_body_for(const std::string& path, const ApiError& error, const std::string& request_id) {
  if (path.starts_with(kMessages)) return messages_error_body(error, request_id);
  return path == kCompletion ? llama_error_body(error, request_id) : error.body();
}

std::vector<ServedRoute> DialectApi::routes() {
  std::vector<ServedRoute> routes;
  for (const std::string_view path : {kMessages, kCountTokens, kCompletion})
    routes.push_back({"POST", std::string(path)});
  return routes;
}

nlohmann::json DialectApi::status(const HttpRequest&) const { return nlohmann::json::object(); }

bool DialectApi::handle(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  auto route = dialect_route(request.path, service_, lenient_);
  if (!route) return false;
  if (request.method != "POST") {
    const ApiError e = wrong_method(request.path, request.method, "POST");
    exchange->respond(e.http_status, "application/json", route->error_body(e, exchange->request_id()),
                      {{"Allow", "POST"}});
    return true;
  }
  const auto slot = std::make_shared<std::unique_ptr<AnswerTranslator>>();
  const std::shared_ptr<Exchange> translated =
      std::make_shared<TranslatedExchange>(exchange, route->error_body, slot, service_.pool(), request.owner);
  auto make = make_with(std::move(route->read), slot);
  const Service::Call call{request, translated};
  route->counts ? service_.count_tokens(call, std::move(make)) : service_.complete(call, std::move(make));
  return true;
}

}  // namespace moestro::orchestrator
