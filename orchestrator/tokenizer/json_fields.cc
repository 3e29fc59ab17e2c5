#include "orchestrator/tokenizer/json_fields.h"

#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<bool> read_bool(const Json& object, const char* key, bool fallback) {
  const Json* value = member(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return invalid_argument("'" + std::string(key) + "' must be true or false");
  return value->get<bool>();
}

Result<int64_t> read_int(const Json& object, const char* key, int64_t low, int64_t high) {
  const Json* value = member(object, key);
  const auto wrong = [&] {
    return invalid_argument("'" + std::string(key) + "' must be a whole number from " + std::to_string(low) + " to " +
                            std::to_string(high));
  };
  if (value == nullptr || !value->is_number_integer()) return wrong();
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return wrong();
  const auto number = value->get<int64_t>();
  if (number < low || number > high) return wrong();
  return number;
}

Result<std::string> read_string(const Json& object, const char* key) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_string()) return invalid_argument("'" + std::string(key) + "' must be a string");
  return value->get<std::string>();
}

Result<std::string> read_string_or(const Json& object, const char* key, std::string fallback) {
  if (member(object, key) == nullptr) return fallback;
  return read_string(object, key);
}

Result<std::string> read_char(const Json& object, const char* key) {
  MOESTRO_ASSIGN_OR_RETURN(std::string text, read_string(object, key));
  if (text.empty() || code_point_at(text, 0).bytes != text.size()) {
    return invalid_argument("'" + std::string(key) + "' must be one character");
  }
  return text;
}

Result<std::string> read_kind(const Json& part, std::string_view where, std::string_view fallback) {
  if (!part.is_object()) return invalid_argument(std::string(where) + " must be an object");
  if (!fallback.empty() && member(part, "type") == nullptr) return std::string(fallback);
  auto kind = read_string(part, "type");
  if (!kind.is_ok()) return kind.status().with_context(where);
  return kind;
}

Result<const Json*> read_array(const Json& object, const char* key) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_array()) return invalid_argument("'" + std::string(key) + "' must be an array");
  return value;
}

Status unknown_kind(std::string_view where, std::string_view kind) {
  return unsupported(std::string(where) + " is of the kind '" + std::string(kind.substr(0, 60)) +
                     "', which is not supported");
}

}  // namespace moestro::tok
