#include "orchestrator/api/answer_headers.h"

#include <set>
#include <string_view>

namespace moestro::orchestrator {

void add_list(Headers& headers, const char* name, const std::vector<std::string>& what) {
  constexpr size_t kBytesMax = 1000;
  std::string text;
  std::set<std::string_view> said;
  for (const std::string& one : what) {
    if (said.insert(one).second) text += (text.empty() ? "" : "; ") + one;
    if (text.size() > kBytesMax) break;
  }
  if (text.empty()) return;
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';  // names in JSON may be anything, headers not
  if (text.size() > kBytesMax) text.replace(kBytesMax, std::string::npos, "...");
  headers.emplace_back(name, std::move(text));
}

void add_ignored(Headers& headers, const std::vector<std::string>& fields) {
  add_list(headers, "X-Moestro-Ignored", fields);
}

void add_retry_after(Headers& headers, const ApiError& error) {
  if (error.http_status == 503 || error.http_status == 429) headers.emplace_back("Retry-After", "1");
}

void refuse(const std::shared_ptr<Exchange>& exchange, const ApiError& error, Headers headers) {
  add_retry_after(headers, error);
  exchange->respond(error.http_status, "application/json", error.body(), headers);
}

Headers failure_headers(const ApiError& error, ControlPlane& control, bool quarantined) {
  Headers headers;
  if (error.http_status == 429) headers.emplace_back("Retry-After", std::to_string(control.retry_after().count()));
  if (error.http_status == 503) headers.emplace_back("Retry-After", "1");
  if (quarantined)
    headers.emplace_back("x-should-retry", "false");  // OpenAI's clients send what got a 500 again, unless told so
  return headers;
}

}  // namespace moestro::orchestrator
