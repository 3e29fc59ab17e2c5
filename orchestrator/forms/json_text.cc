#include "orchestrator/forms/json_text.h"

#include <nlohmann/json.hpp>

namespace moestro::orchestrator {

std::string quoted_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string escaped_json(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
    if (plain) {
      out += c;
      continue;
    }
    const std::string one = quoted_json(std::string_view(&c, 1));
    out += one.substr(1, one.size() - 2);
  }
  return out;
}

bool JsonEnd::take(char c) {
  if (in_string_) {
    if (escaped_) escaped_ = false;
    else if (c == '\\') escaped_ = true;
    else if (c == '"') in_string_ = false;
    return false;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  return (c == '}' || c == ']') && --depth_ <= 0;
}

}  // namespace moestro::orchestrator
