#pragma once
// /v1/moestro/status: what the status page and `moestro top` show. docs/api.md has its members.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "orchestrator/api/forecast.h"
#include "orchestrator/api/request_metrics.h"
#include "orchestrator/control/control_plane.h"
#include "orchestrator/store_watch/store_watch.h"

namespace moestro::orchestrator {

struct StatusSources {
  std::string model;
  double uptime_s = 0;
  ControlSnapshot control;
  bool draining = false, had_worker = false;
  size_t queue_max = 0;
  bool has_store = false;              ///< one is asked for its figures
  std::optional<StoreFigures> store;  ///< what it said last; none: it does not answer
  std::optional<ExpertShares> experts;  ///< where they were asked for
  std::optional<Forecast> forecast;     ///< of `moestro up`
};

/// `more`: members of a part that the API knows nothing of, such as batches.
nlohmann::json status_report(const StatusSources& now, const RequestMetrics& requests, const nlohmann::json& more);

/// What is wrong, the worst first, in words for whoever is on call: {"severity": "error" or "warning", "what", "do"}.
/// `more` as above.
nlohmann::json problems_of(const StatusSources& now, const nlohmann::json& more);

/// /health of a cluster that answers: {"status": "ok"}, or "degraded" with the errors among its problems. It is asked
/// often, and by anybody.
nlohmann::json health_report(const StatusSources& now);

}  // namespace moestro::orchestrator
