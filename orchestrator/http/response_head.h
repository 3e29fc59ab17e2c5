#pragma once
// The head of an answer as it is sent.

#include <cstdint>
#include <optional>
#include <string>

#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

struct ResponseHead {
  int status = 200;
  std::string content_type;
  Headers headers;
  std::optional<uint64_t> content_bytes;  ///< nullopt: in chunks, or for HTTP/1.0 until the connection is closed
  bool http_1_0 = false;                  ///< the request is HTTP/1.0, which has no chunks
  bool keep_alive = true;
};

/// Includes the empty line at the end. An answer that has no body by its status has no header for one.
std::string wire_text(const ResponseHead& head);

}  // namespace moestro::orchestrator
