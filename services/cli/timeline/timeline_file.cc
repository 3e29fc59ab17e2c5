#include "services/cli/timeline/timeline_file.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "common/tier/line_reader.h"
#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

constexpr double kMicrosMax = 1e15;  ///< 31 years

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == ',')) line.remove_suffix(1);
  return line;
}

/// -1: there is none.
int64_t index_of(const json& object, const char* key) {
  return static_cast<int64_t>(count_or(object, key, static_cast<uint64_t>(int64_t{-1})));
}

Result<Nanos> micros_of(const json& event, const char* key) {
  const double us = number_or(event, key, std::numeric_limits<double>::quiet_NaN());
  if (!(us >= 0 && us <= kMicrosMax))
    return invalid_argument(std::string("a slice whose ") + key + " is no time in microseconds");
  return Nanos(std::llround(us * 1e3));
}

/// nullopt: an event without a meaning here, such as an arrow.
Result<std::optional<TimelineEvent>> event_of(const json& object) {
  using Kind = TimelineEvent::Kind;
  if (!object.is_object()) return invalid_argument("not an event");
  const std::string phase = text_or(object, "ph"), name = text_or(object, "name");
  const json arguments = object.value("args", json::object());
  TimelineEvent event{.pid = index_of(object, "pid"), .track = index_of(object, "tid")};
  if (phase == "M" && (name == "process_name" || name == "thread_name")) {
    event.kind = name == "process_name" ? Kind::kProcessName : Kind::kTrackName;
    event.name = text_or(arguments, "name");
    return std::optional(std::move(event));
  }
  if (phase != "X") return std::optional<TimelineEvent>();
  event.name = name;
  MOESTRO_ASSIGN_OR_RETURN(event.begin, micros_of(object, "ts"));
  MOESTRO_ASSIGN_OR_RETURN(const Nanos length, micros_of(object, "dur"));
  event.end = event.begin + length;
  event.plan = count_or(arguments, "plan");
  event.layer = index_of(arguments, "layer");
  event.expert = index_of(arguments, "expert");
  event.tier = text_or(arguments, "tier");
  event.cause = text_or(arguments, "cause");
  return std::optional(std::move(event));
}

Status not_a_timeline(const std::filesystem::path& path) {
  return invalid_argument(path.string() +
                          " is not a timeline, whose first line is '['; record one with: moestro up --model PACK "
                          "--timeline timeline.json");
}

}  // namespace

Status read_timeline(const std::filesystem::path& path, const std::function<Status(const TimelineEvent&)>& take) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return not_found("there is no file " + path.string() +
                     "; record a timeline with: moestro up --model PACK --timeline timeline.json");
  if (std::filesystem::is_directory(path, error)) return invalid_argument(path.string() + " is a directory");
  MOESTRO_ASSIGN_OR_RETURN(tier::LineReader lines, tier::LineReader::open(path));
  std::optional<uint64_t> incomplete;  // the line that may only be the last
  for (uint64_t number = 1;; ++number) {
    const auto where = [&](uint64_t line) { return path.string() + ":" + std::to_string(line); };
    MOESTRO_ASSIGN_OR_RETURN(const auto line, lines.next());
    if (!line) return number == 1 ? not_a_timeline(path) : Status::ok();
    const std::string_view text = trimmed(*line);
    if (number == 1 && text != "[") return not_a_timeline(path);
    if (incomplete) return invalid_argument(where(*incomplete) + ": not JSON");
    if (number == 1 || text.empty() || text == "]") continue;
    const auto object = parse_json(text);
    if (!object.is_ok()) {
      incomplete = number;
      continue;
    }
    const auto event = event_of(*object);
    MOESTRO_RETURN_IF_ERROR(event.status().with_context(where(number)));
    if (*event) MOESTRO_RETURN_IF_ERROR(take(**event).with_context(where(number)));
  }
}

}  // namespace moestro::cli
