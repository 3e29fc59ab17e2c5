#pragma once
// The routes of Anthropic's Messages API and of llama-server's /completion. Server's thread.

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "orchestrator/api/extension.h"
#include "orchestrator/api/service.h"
#include "orchestrator/dialects/dialect.h"

namespace moestro::orchestrator {

/// The body of an error as clients of that path expect it: for what is refused before its route is known.
std::string error_body_for(const std::string& path, const ApiError& error, const std::string& request_id);

class DialectApi final : public Extension {
 public:
  /// `service` outlives it. `lenient`: as ServiceOptions have it.
  DialectApi(Service& service, bool lenient) : service_(service), lenient_(lenient) {}

  bool handle(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) override;
  /// What it serves.
  static std::vector<ServedRoute> routes();
  std::string metrics() const override { return ""; }
  nlohmann::json status(const HttpRequest&) const override;

 private:
  Service& service_;
  const bool lenient_;
};

}  // namespace moestro::orchestrator
