#include "orchestrator/http/request_head.h"

#include <boost/beast/http/error.hpp>
#include <string_view>

namespace moestro::orchestrator {

namespace http = boost::beast::http;

void limit(RequestParser& parser, uint32_t header_bytes_max, uint64_t body_bytes_max) {
  parser.header_limit(header_bytes_max);
  parser.body_limit(body_bytes_max);
}

HttpRequest head_of(const http::request<http::string_body>& request) {
  const std::string_view target(request.target().data(), request.target().size());
  const size_t mark = target.find('?');
  HttpRequest plain{request.method() == http::verb::head ? "GET" : std::string(request.method_string()), std::string(target.substr(0, mark)), ""};
  if (mark != std::string_view::npos) plain.query = target.substr(mark + 1);
  plain.authorization = std::string(request[http::field::authorization]);
  plain.origin = std::string(request[http::field::origin]);
  plain.request_id = std::string(request["X-Request-Id"]);
  return plain;
}

bool is_no_http(const boost::system::error_code& error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() && error != http::error::end_of_stream &&
         error != http::error::partial_message;
}

}  // namespace moestro::orchestrator
