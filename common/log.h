#pragma once
// Logging of every program: one line on stderr, with time, level and program. Written for the person on call.

#include <spdlog/spdlog.h>

#include <string>

#include "common/status.h"

namespace moestro::log {

/// Call once in main. level: trace, debug, info, warn, error.
Status init(const std::string& program, const std::string& level);

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

}  // namespace moestro::log
