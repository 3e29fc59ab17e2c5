#pragma once
// The first thing that a request passes: it gets an id, which its answer, and every line of the logs that is about it,
// has too. Server's thread only.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

inline constexpr size_t kRequestIdBytesMax = 128;

/// Letters, digits and `-_.:/=+@`: what can stand in a log line, a header and a search box as it is.
bool is_request_id(std::string_view text);

/// Lets a few warnings a second through; the next one says how many were left out.
class WarningLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// The number that were left out before this one; -1: leave this one out.
  int64_t take(Time now);

 private:
  Time second_{};
  int in_second_ = 0;
  int64_t left_out_ = 0;
};

class RequestLog {
 public:
  explicit RequestLog(Handler inside) : inside_(std::move(inside)) {}
  /// A client's X-Request-Id stays if it is one; another, or none, is replaced. The answer has it. Requests are logged
  /// when their answer is out: at debug, and those that failed for a fault of this side (5xx) as warnings with what was
  /// said.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

 private:
  class Logged;
  const Handler inside_;
  const std::shared_ptr<WarningLimit> limit_ = std::make_shared<WarningLimit>();
};

}  // namespace moestro::orchestrator
