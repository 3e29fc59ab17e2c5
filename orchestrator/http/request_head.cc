#include "orchestrator/http/request_head.h"

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <string_view>
#include <vector>

namespace moestro::orchestrator {

namespace http = boost::beast::http;
using boost::beast::iequals;

namespace {

constexpr std::string_view kTokenSigns = "!#$%&'*+-.^_`|~", kHostSigns = "-._~!$&'()*+,;=%:[]";

bool made_of(std::string_view text, std::string_view signs) {
  return std::all_of(text.begin(), text.end(), [signs](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           signs.find(c) != std::string_view::npos;
  });
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// All values of a header, as one list.
std::vector<std::string_view> list_of(const RequestMessage& request, http::field name) {
  std::vector<std::string_view> items;
  const auto [begin, end] = request.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    std::string_view rest(field->value().data(), field->value().size());
    for (size_t comma; (comma = rest.find(',')) != std::string_view::npos; rest.remove_prefix(comma + 1))
      items.push_back(trimmed(rest.substr(0, comma)));
    items.push_back(trimmed(rest));
  }
  return items;
}

bool is_chunked(std::string_view coding) { return iequals({coding.data(), coding.size()}, "chunked"); }

std::optional<Refusal> coding_problem(const RequestMessage& request) {
  const auto codings = list_of(request, http::field::transfer_encoding);
  if (codings.empty()) return std::nullopt;
  if (request.version() < 11) return Refusal{400, "'Transfer-Encoding' is not for HTTP/1.0"};
  if (request.count(http::field::content_length) > 0)
    return Refusal{400, "the header has both 'Transfer-Encoding' and 'Content-Length'"};
  if (!is_chunked(codings.back()))
    return Refusal{400, "'Transfer-Encoding' does not end in chunked: nobody could tell where the body ends"};
  for (size_t i = 0; i + 1 < codings.size(); ++i)
    if (codings[i].empty() || is_chunked(codings[i]) || !made_of(codings[i], kTokenSigns))
      return Refusal{400, "'Transfer-Encoding' can only be chunked"};
  if (codings.size() > 1) return Refusal{501, "'Transfer-Encoding' can only be chunked"};
  return std::nullopt;
}

/// The part of an absolute-form target behind its host; nothing: it has another form.
std::optional<std::string_view> behind_host(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() <= scheme.size()) continue;
    const std::string_view begin = target.substr(0, scheme.size());
    if (!iequals({begin.data(), begin.size()}, {scheme.data(), scheme.size()})) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    return path == scheme.size() ? std::nullopt : std::optional(target.substr(std::min(path, target.size())));
  }
  return std::nullopt;
}

}  // namespace

void limit(RequestParser& parser, uint32_t header_bytes_max, uint64_t body_bytes_max) {
  parser.header_limit(header_bytes_max);
  parser.body_limit(body_bytes_max);
}

HttpRequest head_of(const RequestMessage& request) {
  std::string_view target(request.target().data(), request.target().size());
  if (const auto behind = behind_host(target)) target = *behind;
  const size_t mark = target.find('?');
  std::string path(target.substr(0, mark));
  if (path.empty()) path = "/";  // http://host
  HttpRequest plain{request.method() == http::verb::head ? "GET" : std::string(request.method_string()),
                    std::move(path), ""};
  if (mark != std::string_view::npos) plain.query = target.substr(mark + 1);
  plain.authorization = std::string(request[http::field::authorization]);
  if (const auto key = request["X-Api-Key"]; plain.authorization.empty() && !key.empty())
    plain.authorization = "Bearer " + std::string(key);  // as Anthropic's clients send it
  plain.origin = std::string(request[http::field::origin]);
  plain.asked_headers = std::string(request[http::field::access_control_request_headers]);
  plain.request_id = std::string(request["X-Request-Id"]);
  return plain;
}

std::optional<Refusal> framing_problem(const RequestMessage& request) {
  if (auto problem = coding_problem(request)) return problem;
  const size_t hosts = request.count(http::field::host);
  if (hosts > 1) return Refusal{400, "the header has more than one 'Host'"};
  if (hosts == 0 && request.version() >= 11) return Refusal{400, "the header has no 'Host'"};
  const auto host = request[http::field::host];
  if (!made_of({host.data(), host.size()}, kHostSigns)) return Refusal{400, "'Host' is not a host"};
  const std::string_view target(request.target().data(), request.target().size());
  if (!target.starts_with('/') && target != "*" && !behind_host(target))
    return Refusal{400, "the request's target is neither a path nor a URL of http"};
  return std::nullopt;
}

bool is_no_http(const boost::system::error_code& error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace moestro::orchestrator
