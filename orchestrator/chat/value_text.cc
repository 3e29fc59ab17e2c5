#include <charconv>
#include <cmath>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/text.h"
#include "orchestrator/chat/value.h"

namespace moestro::jinja {
namespace {

void append_hex(std::string& out, const char* prefix, char32_t c, int digits) {
  out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[(c >> shift) & 15];
}

void append_string_repr(std::string& out, const std::string& text) {
  const bool doubled = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size();) {
    size_t n = 1;
    const char32_t c = code_point_at(text, i, &n);
    if (c == '\\' || c == static_cast<char32_t>(quote))
      out += '\\', out += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (is_printable(c))
      out.append(text, i, n);
    else if (c < 0x100)
      append_hex(out, "\\x", c, 2);
    else if (c < 0x10000)
      append_hex(out, "\\u", c, 4);
    else
      append_hex(out, "\\U", c, 8);
    i += n;
  }
  out += quote;
}

// A range of at least two numbers can be written down from them; of a shorter one the bounds are not known any more.
void append_range(std::string& out, const List& range) {
  if (range.items.size() < 2) fail_unsupported("printing a range of fewer than two numbers is not supported");
  const int64_t first = range.items[0].as_int(), step = range.items[1].as_int() - first;
  if (step != 1) fail_unsupported("printing a range with a step is not supported");
  out += "range(" + std::to_string(first) + ", " + std::to_string(range.items.back().as_int() + 1) + ")";
}

void append_list(std::string& out, const Value& value) {
  const List& list = value.as_list();
  if (list.kind == List::Kind::kRange) return append_range(out, list);
  const bool tuple = list.kind == List::Kind::kTuple;
  if (list.is_view()) out += value.type_name() + "(";
  out += tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, list.items[i]);
  }
  if (tuple && list.items.size() == 1) out += ',';
  out += tuple ? ')' : ']';
  if (list.is_view()) out += ')';
}

}  // namespace

// Python's repr of a float: the shortest digits that read back the same, with an exponent below 1e-4 and from
// 1e16 on.
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string scientific(buffer, end);
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  if (exponent < -4 || exponent >= 16) return scientific;  // to_chars writes "1e+16", "1.5e-05" as Python does
  const auto fixed_end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

void append_repr(std::string& out, const Value& value) {
  switch (value.type()) {
    case Value::Type::kUndefined:
      out += "Undefined";
      break;
    case Value::Type::kNone:
      out += "None";
      break;
    case Value::Type::kBool:
      out += value.truthy() ? "True" : "False";
      break;
    case Value::Type::kInt:
      out += std::to_string(value.as_int());
      break;
    case Value::Type::kFloat:
      out += real_text(value.as_real());
      break;
    case Value::Type::kString:
      if (value.is_markup()) out += "Markup(";
      append_string_repr(out, value.as_string());
      if (value.is_markup()) out += ')';
      break;
    case Value::Type::kList:
      append_list(out, value);
      break;
    case Value::Type::kDict: {
      out += '{';
      const char* separator = "";
      for (const auto& [key, item] : value.as_dict().items) {
        out += separator;
        append_repr(out, key);
        out += ": ";
        append_repr(out, item);
        separator = ", ";
      }
      out += '}';
      break;
    }
    default:  // Python prints what they are and where they lie in memory
      fail_unsupported("printing a " + value.type_name() + " is not supported");
  }
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_undefined()) return {};
  std::string out;
  append_repr(out, value);
  return out;
}

}  // namespace moestro::jinja
