#pragma once
// The address of a server.

#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::cli {

inline constexpr const char* kDefaultUrl = "http://127.0.0.1:8080";

struct Url {
  std::string host;  ///< a name or an address; IPv6 without its brackets
  std::string port = "80";
  std::string base;  ///< path before "/v1/...", without a slash at its end; often empty
  bool secure = false;  ///< https

  std::string authority() const;  ///< "host:port" for the Host header
  std::string origin() const;     ///< "https://host:port", for messages
};

/// "http[s]://HOST[:PORT][/BASE]", port 80 or 443 if none is given.
Result<Url> parse_url(std::string_view text);

}  // namespace moestro::cli
