#pragma once
// What else is served beside completions, by a part of the orchestrator that the API knows nothing of. Server's thread
// only.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

/// A method and a path that are served. The last part of the path may be "{...}": anything.
struct ServedRoute {
  std::string method, path;
};

class Extension {
 public:
  virtual ~Extension() = default;
  /// True if the path is its own: then it answers.
  virtual bool handle(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) = 0;
  /// More of /metrics, in Prometheus' text format.
  virtual std::string metrics() const = 0;
  /// More members of /v1/moestro/status.
  virtual nlohmann::json status(const HttpRequest& request) const = 0;
};

}  // namespace moestro::orchestrator
