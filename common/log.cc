#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include "common/log_format.h"

namespace moestro::log {

Status init(const std::string& program, const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    return invalid_argument("log level '" + level + "' is not one of trace, debug, info, warn, error, off");
  auto logger = std::make_shared<spdlog::logger>(program, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(formatter_of("text"));
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return Status::ok();
}

}  // namespace moestro::log
