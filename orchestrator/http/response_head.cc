#include "orchestrator/http/response_head.h"

#include <boost/beast/http/status.hpp>

namespace moestro::orchestrator {

std::string wire_text(const ResponseHead& head) {
  const auto reason = boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(head.status));
  std::string text = "HTTP/1.1 " + std::to_string(head.status) + " " + std::string(reason) + "\r\n";
  const bool has_body = head.status >= 200 && head.status != 204 && head.status != 304;
  if (has_body) text += "Content-Type: " + head.content_type + "\r\n";
  for (const auto& [name, value] : head.headers) text += name + ": " + value + "\r\n";
  if (!head.keep_alive)
    text += "Connection: close\r\n";
  else if (head.http_1_0)
    text += "Connection: keep-alive\r\n";
  if (has_body && head.content_bytes)
    text += "Content-Length: " + std::to_string(*head.content_bytes) + "\r\n";
  else if (has_body && !head.http_1_0)
    text += "Transfer-Encoding: chunked\r\n";
  return text + "\r\n";
}

}  // namespace moestro::orchestrator
