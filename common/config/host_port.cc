#include "common/config/host_port.h"

#include <algorithm>
#include <charconv>

namespace moestro::config {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

Status not_an_address(std::string_view text) {
  return invalid_argument("'" + std::string(text) + "' is not HOST:PORT (as 127.0.0.1:8080 or [::1]:8080)");
}

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc{} && end == text.data() + text.size() && port <= 65535;
}

/// A name or an address as it may stand in a Host header: nothing that ends a header line or a URL's authority.
bool is_host(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte < 0x7f && std::string_view("@/?#[]\\").find(c) == std::string_view::npos;
  });
}

}  // namespace

std::string HostPort::text() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

std::string HostPort::host_for_local_clients() const {
  if (host == "0.0.0.0") return kLoopback;
  return host == "::" ? "::1" : host;
}

Result<HostPort> parse_host_port(std::string_view text) {
  HostPort result;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find("]:");
    if (close == std::string_view::npos) return not_an_address(text);
    result.host = text.substr(1, close - 1);
    port = text.substr(close + 2);
  } else {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos)
      return not_an_address(text);
    result.host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (!is_host(result.host) || !is_port(port)) return not_an_address(text);
  result.port = port;
  return result;
}

Result<HostPort> parse_listen_address(std::string_view text) {
  const std::string_view port = text.starts_with(':') ? text.substr(1) : text;
  if (is_port(port)) return HostPort{kLoopback, std::string(port)};
  return parse_host_port(text);
}

}  // namespace moestro::config
