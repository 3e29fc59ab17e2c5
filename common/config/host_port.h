#pragma once
// Network addresses as people write them.

#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::config {

struct HostPort {
  std::string host;  ///< a name or an address; IPv6 without its brackets
  std::string port;

  /// "127.0.0.1:8080", "[::1]:8080".
  std::string text() const;
  /// Where clients on its machine find a server that listens there, on every address perhaps.
  std::string host_for_local_clients() const;
};

/// "HOST:PORT" or "[V6]:PORT", port 0 to 65535. kInvalidArgument shows how to write it.
Result<HostPort> parse_host_port(std::string_view text);

/// Where a server listens: also "PORT" and ":PORT". Both mean 127.0.0.1: an API that needs no key is not opened to the
/// network by a short form. All addresses are 0.0.0.0 or [::].
Result<HostPort> parse_listen_address(std::string_view text);

}  // namespace moestro::config
