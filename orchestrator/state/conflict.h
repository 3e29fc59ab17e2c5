#pragma once
// The code of a state if another process was first: read the state again.

#include <string>
#include <utility>

#include "common/status.h"

namespace moestro::orchestrator {

inline constexpr Code kConflict = Code::kCancelled;  // another change came first
inline Status conflict(std::string message) { return cancelled(std::move(message)); }

}  // namespace moestro::orchestrator
