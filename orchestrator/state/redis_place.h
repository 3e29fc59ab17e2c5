#pragma once
// Which Redis `orchestrator.state` names: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB][?window=2s&password_file=PATH].
// Pure, but for that file.

#include <cstdint>
#include <string>

#include "common/status.h"

namespace moestro::orchestrator {

struct RedisPlace {
  std::string host;
  uint16_t port = 6379;
  int64_t database = 0;
  std::string user, password;
  /// The data that may be lost when Redis or its machine dies, in seconds; 0: nothing that was acknowledged.
  int64_t window_seconds = 0;
  /// For messages: without user and password.
  std::string shown() const;
};

/// Whether a setting is an address of a Redis, valid or not.
bool is_redis_url(const std::string& setting);
/// TLS (rediss://) and unknown options are rejected by name. Messages never contain the password.
Result<RedisPlace> parse_redis_url(const std::string& url);

}  // namespace moestro::orchestrator
