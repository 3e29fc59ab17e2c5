#include "services/cli/url.h"

#include <charconv>

namespace moestro::cli {
namespace {

Status bad(std::string_view text, std::string_view why) {
  return invalid_argument("'" + std::string(text) + "' " + std::string(why));
}

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port <= 65535;
}

/// A name or an address as it may stand in a Host header: nothing that ends a header line or a URL's
/// authority.
bool is_host(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7f || std::string_view("@/?#[]\\").find(c) != std::string_view::npos)
      return false;
  }
  return true;
}

}  // namespace

std::string Url::authority() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

std::string Url::origin() const { return (secure ? "https://" : "http://") + authority(); }

Result<HostPort> parse_host_port(std::string_view text) {
  constexpr std::string_view kHow = "is not HOST:PORT (as 127.0.0.1:8080 or [::1]:8080)";
  HostPort result;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find("]:");
    if (close == std::string_view::npos) return bad(text, kHow);
    result.host = text.substr(1, close - 1);
    port = text.substr(close + 2);
  } else {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos)
      return bad(text, kHow);
    result.host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (!is_host(result.host) || !is_port(port)) return bad(text, kHow);
  result.port = port;
  return result;
}

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kPlain = "http://", kSecure = "https://",
                             kHow = "is not a URL of the form http://HOST:PORT or https://HOST:PORT";
  Url url;
  url.secure = text.starts_with(kSecure);
  if (!url.secure && !text.starts_with(kPlain)) return bad(text, kHow);
  std::string_view rest = text.substr(url.secure ? kSecure.size() : kPlain.size());
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view base = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash);
  while (base.ends_with('/')) base.remove_suffix(1);
  for (const char c : base)
    if (static_cast<unsigned char>(c) <= 0x20 || c == '?' || c == '#' ||
        static_cast<unsigned char>(c) >= 0x7f)
      return bad(text, "has a path that cannot be used: no query, fragment or spaces");
  const bool has_port = authority.starts_with('[') ? authority.find("]:") != std::string_view::npos
                                                   : authority.find(':') != std::string_view::npos;
  const std::string with_port = std::string(authority) + (has_port ? "" : url.secure ? ":443" : ":80");
  const Result<HostPort> parsed = parse_host_port(with_port);
  if (!parsed.is_ok()) return bad(text, kHow);
  url.host = parsed->host;
  url.port = parsed->port;
  url.base = base;
  return url;
}

}  // namespace moestro::cli
