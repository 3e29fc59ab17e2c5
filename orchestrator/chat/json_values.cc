#include "orchestrator/chat/json_values.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

constexpr int kJsonDepthMax = 90;  // leaves room for what a template wraps around a value

template <typename Json>
Value convert(const Json& json, int depth) {
  if (depth > kJsonDepthMax) fail_exhausted("the JSON nests more than 90 levels deep");
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.template get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.template get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.template get<uint64_t>();
      // What does not fit becomes a float, as larger numbers already are after parsing.
      if (number > static_cast<uint64_t>(INT64_MAX)) return Value::real(static_cast<double>(number));
      return Value::integer(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value::real(json.template get<double>());
    case Json::value_t::string:
      return Value::string(sanitize_utf8(json.template get_ref<const std::string&>()));
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(json.size());
      for (auto it = json.begin(); it != json.end(); ++it) {
        items.emplace_back(Value::string(sanitize_utf8(it.key())), convert(it.value(), depth + 1));
      }
      return Value::dict(std::move(items));
    }
    default:
      return Value::none();
  }
}

void append_escaped(std::string& out, char32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[(unit >> shift) & 15];
}

// As two UTF-16 units where one does not hold it.
void append_ascii(std::string& out, char32_t c) {
  if (c >= 0x10000) {
    append_escaped(out, 0xD800 + ((c - 0x10000) >> 10));
    c = 0xDC00 + ((c - 0x10000) & 0x3FF);
  }
  append_escaped(out, c);
}

void append_json_string(std::string& out, std::string_view text, const JsonStyle& style) {
  static constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  out += '"';
  for (size_t i = 0, n = 1; i < text.size(); i += n) {
    const char32_t c = code_point_at(text, i, &n);
    const size_t special = c < 0x80 ? kSpecial.find(static_cast<char>(c)) : std::string_view::npos;
    if (special != std::string_view::npos) {
      out += '\\';
      out += kLetters[special];
    } else if (c < 0x20 || (style.ensure_ascii && c >= 0x7F)) {
      append_ascii(out, c);
    } else {
      out += text.substr(i, n);
    }
  }
  out += '"';
}

std::string json_real(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return real_text(value);
}

std::string json_key(const Value& key) {
  if (key.is_string()) return key.as_string();
  if (key.is_none()) return "null";
  if (key.is_bool()) return key.truthy() ? "true" : "false";
  if (key.is_int()) return std::to_string(key.as_int());
  if (key.is_float()) return json_real(key.as_real());
  fail("keys must be str, int, float, bool or None, not " + key.type_name());
}

void append_json(std::string& out, const Value& value, const JsonStyle& style, int level);

void new_line(std::string& out, const JsonStyle& style, int level) {
  if (!style.indent) return;
  out += '\n';
  for (int i = 0; i < level; ++i) out += *style.indent;
}

void append_dict(std::string& out, const Dict& dict, const JsonStyle& style, int level) {
  std::vector<const std::pair<Value, Value>*> items;
  for (const auto& item : dict.items) items.push_back(&item);
  if (style.sort_keys) {
    std::stable_sort(items.begin(), items.end(),
                     [](const auto* a, const auto* b) { return compare(a->first, b->first) < 0; });
  }
  out += '{';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += style.item_separator;
    new_line(out, style, level + 1);
    append_json_string(out, json_key(items[i]->first), style);
    out += style.key_separator;
    append_json(out, items[i]->second, style, level + 1);
  }
  if (!items.empty()) new_line(out, style, level);
  out += '}';
}

void append_list(std::string& out, const std::vector<Value>& items, const JsonStyle& style, int level) {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += style.item_separator;
    new_line(out, style, level + 1);
    append_json(out, items[i], style, level + 1);
  }
  if (!items.empty()) new_line(out, style, level);
  out += ']';
}

void append_json(std::string& out, const Value& value, const JsonStyle& style, int level) {
  switch (value.type()) {
    case Value::Type::kNone:
      out += "null";
      break;
    case Value::Type::kBool:
      out += value.truthy() ? "true" : "false";
      break;
    case Value::Type::kInt:
      out += std::to_string(value.as_int());
      break;
    case Value::Type::kFloat:
      out += json_real(value.as_real());
      break;
    case Value::Type::kString:
      append_json_string(out, value.as_string(), style);
      break;
    case Value::Type::kDict:
      append_dict(out, value.as_dict(), style, level);
      break;
    case Value::Type::kList:
      if (value.is_list(List::Kind::kList) || value.is_list(List::Kind::kTuple))
        return append_list(out, value.as_list().items, style, level);
      [[fallthrough]];
    default:
      fail("Object of type " + value.type_name() + " is not JSON serializable");
  }
}

}  // namespace

Value from_json(const nlohmann::json& json, int depth) {
  return convert(json, depth);
}
Value from_json(const nlohmann::ordered_json& json, int depth) {
  return convert(json, depth);
}

Value parse_json(std::string_view text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded()) fail("the text is not JSON");
  return convert(json, 0);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  append_json(out, value, style, 0);
  return out;
}

}  // namespace moestro::jinja
