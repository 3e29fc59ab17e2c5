#pragma once
// The store's own figures in /metrics and in /v1/moestro/status; what it says of the tiers is in tier_metrics.h.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "orchestrator/store_watch/store_watch.h"

namespace moestro::orchestrator {

/// Prometheus' text format; none: `moestro_store_up 0` alone.
std::string store_metrics_text(const std::optional<StoreFigures>& store);
/// null for none.
nlohmann::json store_status(const std::optional<StoreFigures>& store);

}  // namespace moestro::orchestrator
