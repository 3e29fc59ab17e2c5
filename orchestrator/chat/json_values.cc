#include "orchestrator/chat/json_values.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

constexpr int kDepthMax = 90;  // leaves room for what a template wraps around a value

template <typename Json>
Value convert(const Json& json, int depth) {
  if (depth > kDepthMax) fail_exhausted("the JSON nests more than 90 levels deep");
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

struct Style {
  int indent;
  const std::string &item_separator, &key_separator;
  bool sort_keys;
};

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += "0123456789abcdef"[(c >> 4) & 15];
          out += "0123456789abcdef"[c & 15];
        } else {
          out += c;
        }
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

void append_json(std::string& out, const Value& value, const Style& style, int level);

void new_line(std::string& out, const Style& style, int level) {
  if (style.indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(style.indent) * static_cast<size_t>(level), ' ');
}

void append_dict(std::string& out, const Dict& dict, const Style& style, int level) {
  std::vector<std::pair<std::string, const Value*>> items;
  for (const auto& [key, value] : dict.items) items.emplace_back(json_key(key), &value);
  if (style.sort_keys) {
    std::stable_sort(items.begin(), items.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  out += '{';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += style.item_separator;
    new_line(out, style, level + 1);
    append_json_string(out, items[i].first);
    out += style.key_separator;
    append_json(out, *items[i].second, style, level + 1);
  }
  if (!items.empty()) new_line(out, style, level);
  out += '}';
}

void append_json(std::string& out, const Value& value, const Style& style, int level) {
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
      append_json_string(out, value.as_string());
      break;
    case Value::Type::kDict:
      append_dict(out, value.as_dict(), style, level);
      break;
    case Value::Type::kList: {
      const auto& items = value.as_list().items;
      if (value.as_list().kind == List::Kind::kGenerator)
        fail("Object of type generator is not JSON serializable");
      out += '[';
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += style.item_separator;
        new_line(out, style, level + 1);
        append_json(out, items[i], style, level + 1);
      }
      if (!items.empty()) new_line(out, style, level);
      out += ']';
      break;
    }
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

std::string to_json(const Value& value, int indent, const std::string& item_separator,
                    const std::string& key_separator, bool sort_keys) {
  std::string out;
  append_json(out, value, Style{indent, item_separator, key_separator, sort_keys}, 0);
  return out;
}

}  // namespace moestro::jinja
