#include "common/log_format.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/log_formatter.h"

namespace moestro::log {
namespace {

// A line is formatted on the thread that writes it.
thread_local std::vector<std::pair<const char*, std::string>> fields;

void append(spdlog::memory_buf_t& to, std::string_view text) { to.append(text.data(), text.data() + text.size()); }

/// One line, whatever a peer's words or a file's name have in them.
std::string on_one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return line;
}

class TextFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& to) override {
    head_.format(line, to);
    append(to, on_one_line({line.payload.data(), line.payload.size()}));
    for (const auto& [name, value] : fields) append(to, " " + std::string(name) + "=" + on_one_line(value));
    append(to, "\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<TextFormatter>(); }

 private:
  spdlog::pattern_formatter head_{"%Y-%m-%dT%H:%M:%S.%e %l %n: ", spdlog::pattern_time_type::local, ""};
};

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& to) override {
    spdlog::memory_buf_t time;
    time_.format(line, time);
    const auto level = spdlog::level::to_string_view(line.level);
    nlohmann::ordered_json object{{"time", std::string_view(time.data(), time.size())},
                                  {"level", std::string_view(level.data(), level.size())},
                                  {"program", std::string_view(line.logger_name.data(), line.logger_name.size())},
                                  {"message", std::string_view(line.payload.data(), line.payload.size())}};
    for (const auto& [name, value] : fields) object[name] = value;
    append(to, object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }

 private:
  spdlog::pattern_formatter time_{"%Y-%m-%dT%H:%M:%S.%eZ", spdlog::pattern_time_type::utc, ""};
};

}  // namespace

std::unique_ptr<spdlog::formatter> formatter_of(const std::string& format) {
  if (format == "json") return std::make_unique<JsonFormatter>();
  return format == "text" ? std::make_unique<TextFormatter>() : nullptr;
}

Field::Field(const char* name, std::string_view value)
    : there_(!value.empty() && std::none_of(fields.begin(), fields.end(), [&](const auto& f) {
        return name == std::string_view(f.first) && f.second == value;
      })) {
  if (there_) fields.emplace_back(name, value);
}

Field::~Field() {
  if (there_) fields.pop_back();
}

std::string formatted(const std::string& program, const std::string& format, std::string_view message) {
  spdlog::memory_buf_t line;
  formatter_of(format)->format(
      spdlog::details::log_msg(program, spdlog::level::warn, spdlog::string_view_t(message.data(), message.size())),
      line);
  return {line.data(), line.size() - 1};
}

Status set_format(const std::string& format) {
  auto formatter = formatter_of(format);
  if (formatter == nullptr) return invalid_argument("log format '" + format + "' is neither text nor json");
  spdlog::default_logger()->set_formatter(std::move(formatter));
  return Status::ok();
}

}  // namespace moestro::log
