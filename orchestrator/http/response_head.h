#pragma once
// The head of an answer, as it goes over the wire.

#include <cstdint>
#include <optional>
#include <string>

#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

struct ResponseHead {
  int status = 200;
  std::string content_type;
  Headers headers;
  std::optional<uint64_t> content_bytes;  ///< nothing: in chunks, or where there are none up to the connection's end
  bool http_1_0 = false;                  ///< so is the request: it knows no chunks
  bool keep_alive = true;
};

/// With the empty line behind it. What has no body by its status says nothing of one.
std::string wire_text(const ResponseHead& head);

}  // namespace moestro::orchestrator
