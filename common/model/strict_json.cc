#include "common/model/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace moestro::model {
namespace {

constexpr int kDepthMax = 64;  // none of the files read here nests deeper than 4

struct Watcher {
  std::vector<std::set<std::string>> open_objects;
  std::string problem;

  bool see(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kDepthMax && problem.empty()) problem = "nested too deeply";
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end && !open_objects.empty()) open_objects.pop_back();
    if (event == Event::key && !open_objects.empty()) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second && problem.empty()) problem = in_quotes(key) + " is given twice";
    }
    return problem.empty();  // after a problem nothing more is kept
  }
};

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr size_t kLengthMax = 120;
  std::string out = "'";
  for (const char c : text.substr(0, kLengthMax)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (text.size() > kLengthMax) out += "...";
  return out + "'";
}

Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where) {
  Watcher watcher;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    return watcher.see(depth, event, value);
  };
  nlohmann::json parsed;
  try {
    parsed = nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& e) {
    const size_t at = dynamic_cast<const nlohmann::json::parse_error*>(&e) != nullptr
                          ? static_cast<const nlohmann::json::parse_error&>(e).byte
                          : 0;
    return invalid_argument(std::string(where) + ": not valid JSON at byte " + std::to_string(at));
  }
  if (!watcher.problem.empty()) return invalid_argument(std::string(where) + ": " + watcher.problem);
  if (!parsed.is_object()) return invalid_argument(std::string(where) + ": not a JSON object");
  return parsed;
}

}  // namespace moestro::model
