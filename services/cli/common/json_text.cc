#include "services/cli/common/json_text.h"

#include <nlohmann/json.hpp>

#include "common/utf8.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 200;

bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDepthMax) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<json> parse_json(std::string_view text) {
  if (too_deep(text)) return invalid_argument("JSON is nested deeper than " + std::to_string(kDepthMax));
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) return invalid_argument("not JSON");
  return value;
}

std::string not_utf8(const std::string& text) {
  const size_t at = find_invalid_utf8(text);
  if (at == std::string::npos) return "";
  return "not UTF-8 (byte " + std::to_string(at) + " cannot be there); convert it first, with iconv for one";
}

Status check_utf8(std::string_view what, const std::string& text) {
  const std::string why = not_utf8(text);
  return why.empty() ? Status::ok() : invalid_argument(std::string(what) + " is " + why);
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}
std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string text_or(const json& object, const char* key, std::string otherwise) {
  if (!object.is_object()) return otherwise;
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

uint64_t count_or(const json& object, const char* key, uint64_t otherwise) {
  if (!object.is_object()) return otherwise;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return otherwise;
  return it->is_number_unsigned() || it->get<int64_t>() >= 0 ? it->get<uint64_t>() : otherwise;
}

double number_or(const json& object, const char* key, double otherwise) {
  if (!object.is_object()) return otherwise;
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

std::string error_message(std::string_view body) {
  const Result<json> parsed = parse_json(body);
  if (parsed.is_ok() && parsed->is_object() && parsed->contains("error")) {
    const json& error = (*parsed)["error"];
    if (error.is_string()) return error.get<std::string>();
    const std::string message = text_or(error, "message");
    if (!message.empty()) return message;
  }
  return std::string(body.substr(0, 200));
}

Status answered_with(int status, std::string_view body) {
  const char* what_to_do = status == 401 ? "; give the key in MOESTRO_API_KEY or with --api-key" : "";
  return unavailable("the server answers " + std::to_string(status) + ": " + error_message(body) + what_to_do);
}

}  // namespace moestro::cli
