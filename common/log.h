#pragma once
// Logging of every program: one line on stderr, with time, level and program. Callers include only fmt's small header;
// spdlog stays in log.cc.

#include <fmt/core.h>

#include <string>
#include <utility>

#include "common/status.h"

namespace moestro::log {

/// Call once in main. level: trace, debug, info, warn, error, off.
Status init(const std::string& program, const std::string& level);

enum class Level { kDebug, kInfo, kWarn, kError };
void write(Level level, fmt::string_view format, fmt::format_args args);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, format, fmt::make_format_args(args...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, format, fmt::make_format_args(args...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarn, format, fmt::make_format_args(args...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, format, fmt::make_format_args(args...));
}

}  // namespace moestro::log
