#include "orchestrator/api/front_door.h"

#include <algorithm>

#include "orchestrator/api/api_error.h"

namespace moestro::orchestrator {

/// Adds headers to the answer, and counts the request until it is out.
class FrontDoor::Guarded final : public ForwardingExchange {
 public:
  Guarded(std::shared_ptr<Exchange> inner, Headers headers, std::shared_ptr<std::map<std::string, uint32_t>> counts,
          std::string key)
      : ForwardingExchange(std::move(inner)),
        headers_(std::move(headers)),
        counts_(std::move(counts)),
        key_(std::move(key)) {
    if (!key_.empty()) ++(*counts_)[key_];
  }
  ~Guarded() override { leave(); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void respond(int status, const std::string& content_type, std::string body, const Headers& headers) override {
    leave();
    inner_->respond(status, content_type, std::move(body), with_own(headers));
  }
  void respond_from(const std::string& content_type, std::shared_ptr<BodySource> source,
                    const Headers& headers) override {
    leave();
    inner_->respond_from(content_type, std::move(source), with_own(headers));
  }
  void begin_stream(const Headers& headers) override { inner_->begin_stream(with_own(headers)); }
  void end_stream() override {
    leave();
    inner_->end_stream();
  }

 private:
  Headers with_own(const Headers& headers) const {
    Headers all = headers_;
    all.insert(all.end(), headers.begin(), headers.end());
    return all;
  }
  void leave() {
    if (key_.empty()) return;
    const auto count = counts_->find(std::exchange(key_, {}));
    if (--count->second == 0) counts_->erase(count);
  }

  const Headers headers_;
  const std::shared_ptr<std::map<std::string, uint32_t>> counts_;
  std::string key_;
};

namespace {

/// What needs no key.
bool is_open(const HttpRequest& request) {
  for (const char* health : {"/health", "/v1/health", "/ping"})
    if (request.path == health) return true;
  return request.path == "/" && request.method == "GET";
}

/// What a browser may send: what means something here and, if it asks for them, the headers of OpenAI's and
/// Anthropic's own clients.
std::string allowed_headers(std::string_view asked) {
  constexpr std::string_view kKnown[] = {"openai-organization", "openai-project", "openai-beta", "x-api-key",
                                        "anthropic-version", "anthropic-beta",
                                        "anthropic-dangerous-direct-browser-access"};
  std::string allowed = "Authorization, Content-Type, X-Request-Id";
  while (!asked.empty()) {
    const size_t comma = std::min(asked.find(','), asked.size());
    std::string name;
    for (const char c : asked.substr(0, comma))
      if (c != ' ' && c != '\t') name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    asked.remove_prefix(std::min(comma + 1, asked.size()));
    const bool known = std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown);
    const bool plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
    if (known || (plain && name.starts_with("x-stainless-"))) allowed += ", " + name;
  }
  return allowed;
}

}  // namespace

Headers FrontDoor::cors_headers(const HttpRequest& request) const {
  if (options_.origins.empty()) return {};
  const auto& all = options_.origins;
  if (std::find(all.begin(), all.end(), "*") != all.end()) return {{"Access-Control-Allow-Origin", "*"}};
  if (request.origin.empty() || std::find(all.begin(), all.end(), request.origin) == all.end())
    return {{"Vary", "Origin"}};
  return {{"Access-Control-Allow-Origin", request.origin}, {"Vary", "Origin"}};
}

void FrontDoor::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  Headers headers = cors_headers(request);
  const bool allowed_origin = !headers.empty() && headers.front().first == "Access-Control-Allow-Origin";
  if (request.method == "OPTIONS" && allowed_origin) {
    headers.insert(headers.end(), {{"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS"},
                                   {"Access-Control-Allow-Headers", allowed_headers(request.asked_headers)},
                                   {"Access-Control-Max-Age", "600"}});
    return exchange->respond(204, "text/plain", "", headers);
  }
  const ApiKeys::Key* key = nullptr;
  const bool open = !options_.keys || is_open(request);
  if (!open) {
    const auto refuse = [&](const ApiError& error) {
      exchange->respond(error.http_status, "application/json",
                        options_.error_body(request.path, error, exchange->request_id()), headers);
    };
    ApiError e = bad_request("");
    key = options_.keys->find(request.authorization);
    if (key == nullptr) {
      e.http_status = 401;
      e.type = "authentication_error";
      e.code = "invalid_api_key";
      e.message = request.authorization.empty() ? "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY"
                                                : "the API key is not known here";
      headers.emplace_back("WWW-Authenticate", "Bearer");
      return refuse(e);
    }
    const auto count = under_way_->find(key->name);
    if (request.method == "POST" && key->concurrency > 0 && count != under_way_->end() &&
        count->second >= key->concurrency) {
      e.http_status = 429;
      e.type = "rate_limit_error";
      e.message = "this key has " + std::to_string(key->concurrency) +
                  " requests under way, as many as it may; try again when one has ended";
      headers.emplace_back("Retry-After", "1");
      return refuse(e);
    }
  }
  if (key != nullptr) {
    request.owner = key->name;
    request.project = key->project;
  }
  request.sees_all = !options_.keys || (key != nullptr && key->admin);
  const bool counted = key != nullptr && key->concurrency > 0 && request.method == "POST";
  if (headers.empty() && !counted) return inside_(std::move(request), std::move(exchange));
  auto guarded =
      std::make_shared<Guarded>(std::move(exchange), std::move(headers), under_way_, counted ? key->name : "");
  inside_(std::move(request), std::move(guarded));
}

}  // namespace moestro::orchestrator
