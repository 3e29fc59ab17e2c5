#pragma once
// Which workers an orchestrator takes.

#include <cstdint>
#include <optional>
#include <string>

#include "orchestrator/control/worker_wire.h"

namespace moestro::orchestrator {

/// Why a worker is not taken by an orchestrator of `model`; `pack`: the identity of the pack that the workers serve that are here already.
Status check_registration(const Registration& worker, const std::string& model, std::optional<uint64_t> pack);

}  // namespace moestro::orchestrator
