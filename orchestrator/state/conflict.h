#pragma once
// What a state says when somebody else was first: look again at what is there.

#include <string>
#include <utility>

#include "common/status.h"

namespace moestro::orchestrator {

inline constexpr Code kConflict = Code::kCancelled;  // what was to be done was overtaken
inline Status conflict(std::string message) { return cancelled(std::move(message)); }

}  // namespace moestro::orchestrator
