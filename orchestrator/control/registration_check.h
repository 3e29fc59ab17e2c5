#pragma once
// Which workers an orchestrator takes.

#include <cstdint>
#include <optional>
#include <string>

#include "orchestrator/control/worker_wire.h"

namespace moestro::orchestrator {

/// Why a worker is not taken by an orchestrator of `model`; `experts`: of those that are here already. It may have
/// another version of their pack.
Status check_registration(const Registration& worker, const std::string& model,
                          std::optional<activation::EamcShape> experts);

}  // namespace moestro::orchestrator
