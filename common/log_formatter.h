#pragma once
// The formats of log_format.h as formatters of spdlog. Only for log.cc and log_format.cc.

#include <spdlog/formatter.h>

#include <memory>
#include <string>

namespace moestro::log {

/// Null for an unknown format.
std::unique_ptr<spdlog::formatter> formatter_of(const std::string& format);

}  // namespace moestro::log
