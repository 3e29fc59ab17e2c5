#include <algorithm>
#include <charconv>
#include <cmath>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/json_values.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {

std::vector<std::optional<Value>> bind(std::string_view what, const Arguments& arguments,
                                       std::initializer_list<std::string_view> names, size_t required) {
  std::vector<std::optional<Value>> bound(names.size());
  if (arguments.positional.size() > names.size()) {
    fail("'" + std::string(what) + "' takes at most " + std::to_string(names.size()) + " argument(s)");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (at == names.size()) fail("'" + std::string(what) + "' takes no argument '" + name + "'");
    if (bound[at]) fail("'" + std::string(what) + "' got two values for '" + name + "'");
    bound[at] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i]) fail("'" + std::string(what) + "' needs the argument '" + std::string(names.begin()[i]) + "'");
  }
  return bound;
}

const std::string& text_argument(std::string_view what, const Value& value) {
  if (value.is_undefined()) fail(value.why_undefined());
  if (!value.is_string()) fail("'" + std::string(what) + "' needs a string, not " + value.type_name());
  return value.as_string();
}

int64_t int_argument(std::string_view what, const Value& value) {
  if (value.is_undefined()) fail(value.why_undefined());
  if (!value.is_whole()) fail("'" + std::string(what) + "' needs a whole number, not " + value.type_name());
  return value.as_int();
}

Value soft_text(Interpreter& interpreter, const Value& value) {
  interpreter.charge(value.shape().weight);
  return value.is_string() ? value : Value::string(to_text(value));
}

namespace {

void read_json_indent(JsonStyle& style, const Value& indent) {
  if (indent.is_none()) return;
  style.indent =
      indent.is_string()
          ? indent.as_string()
          : std::string(static_cast<size_t>(std::clamp<int64_t>(int_argument("tojson", indent), 0, 64)), ' ');
  if (style.indent->size() > 64) fail("'tojson' indents by at most 64 bytes");
  style.item_separator = ",";
}

// transformers' tojson, which is not Jinja's own: nothing is escaped for HTML.
Value filter_tojson(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = args[0] && args[0]->truthy();
  style.sort_keys = args[3] && args[3]->truthy();
  if (args[1]) read_json_indent(style, *args[1]);
  if (args[2] && !args[2]->is_none()) {
    if (!args[2]->is_list() || args[2]->as_list().items.size() != 2) fail("'tojson' needs two separators");
    style.item_separator = text_argument("tojson", args[2]->as_list().items[0]);
    style.key_separator = text_argument("tojson", args[2]->as_list().items[1]);
  }
  const uint64_t around = style.item_separator.size() + style.key_separator.size() + (style.indent ? 16 : 0);
  interpreter.charge(value.shape().weight * (2 + around));
  std::string text = to_json(value, style);
  interpreter.charge_text(text.size());
  return Value::string(std::move(text));
}

// Not in transformers; templates for other servers use it under either name.
Value filter_from_json(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("from_json", arguments, {});
  const std::string& text = text_argument("from_json", value);
  interpreter.charge(1 + text.size());
  return parse_json(text);
}

Value filter_default(Interpreter&, const Value& value, Arguments& arguments) {
  const auto args = bind("default", arguments, {"default_value", "boolean"});
  const bool use_default = value.is_undefined() || (args[1] && args[1]->truthy() && !value.truthy());
  if (!use_default) return value;
  return args[0] ? *args[0] : Value::string("");
}

// Python's int(text) and float(text), as far as 64 bits go.
std::optional<Value> parse_number(std::string_view text) {
  text = strip_left(strip_right(text));
  if (text.find('_') != std::string_view::npos) fail_unsupported("a number with '_' in a string is not supported");
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
  if (begin != text.data() && begin != end && *begin == '-') return std::nullopt;
  int64_t whole = 0;
  if (const auto parsed = std::from_chars(begin, end, whole); parsed.ptr == end && begin != end) {
    if (parsed.ec == std::errc::result_out_of_range) fail_unsupported("a whole number beyond 64 bits is not supported");
    if (parsed.ec == std::errc()) return Value::integer(whole);
  }
  double real = 0;
  const auto parsed = std::from_chars(begin, end, real);
  if (parsed.ec == std::errc() && parsed.ptr == end) return Value::real(real);
  return std::nullopt;
}

// The number that a value is or, if it is a string, says.
std::optional<Value> number_of(const Value& value) {
  if (value.is_undefined()) fail(value.why_undefined());
  if (value.is_number()) return value;
  return value.is_string() ? parse_number(value.as_string()) : std::nullopt;
}

Value filter_int(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("int", arguments, {"default", "base"});
  if (args[1]) fail_unsupported("int with a base is not supported");
  interpreter.charge(value.shape().weight);
  const auto number = number_of(value);
  if (number && number->is_whole()) return Value::integer(number->as_int());
  if (number && std::isfinite(number->as_real())) {
    if (std::fabs(number->as_real()) > 9e18) fail_unsupported("a whole number beyond 64 bits is not supported");
    return Value::integer(static_cast<int64_t>(number->as_real()));
  }
  if (value.is_float() && std::isinf(value.as_real())) fail("cannot convert float infinity to integer");
  return args[0] ? *args[0] : Value::integer(0);
}

Value filter_float(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("float", arguments, {"default"});
  interpreter.charge(value.shape().weight);
  if (const auto number = number_of(value)) return Value::real(number->as_real());
  return args[0] ? *args[0] : Value::real(0);
}

Value filter_abs(Interpreter&, const Value& value, Arguments& arguments) {
  bind("abs", arguments, {});
  if (!value.is_number()) fail("bad operand type for abs(): '" + value.type_name() + "'");
  if (value.is_float()) return Value::real(std::fabs(value.as_real()));
  return value.as_int() < 0 ? unary_operation("-", value) : Value::integer(value.as_int());
}

Value filter_round(Interpreter&, const Value& value, Arguments& arguments) {
  const auto args = bind("round", arguments, {"precision", "method"});
  if (!value.is_number()) fail("'round' needs a number, not " + value.type_name());
  const int64_t precision = args[0] ? int_argument("round", *args[0]) : 0;
  if (precision < 0 || precision > 15)
    fail_unsupported("round to fewer than 0 or more than 15 digits is not supported");
  const std::string method = args[1] ? text_argument("round", *args[1]) : "common";
  if (method == "common" && value.is_whole()) return Value::integer(value.as_int());
  const double scale = std::pow(10.0, static_cast<double>(precision)), x = value.as_real();
  // Python's ceil and floor give whole numbers, which know no -0.
  if (method == "ceil") return Value::real((std::ceil(x * scale) + 0.0) / scale);
  if (method == "floor") return Value::real((std::floor(x * scale) + 0.0) / scale);
  if (method != "common") fail("method must be common, ceil or floor");
  if (!std::isfinite(x)) return value;
  char text[400];  // printf rounds the exact value to even, as Python's round does
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(precision), x);
  return Value::real(std::strtod(text, nullptr));
}

constexpr Named<Filter> kNumberFilters[] = {
    {"default", filter_default},
    {"d", filter_default},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
    {"from_json", filter_from_json},
    {"fromjson", filter_from_json},
    {"tojson", filter_tojson},
};

}  // namespace

Filter find_filter(std::string_view name) {
  if (const Filter filter = find_named(kNumberFilters, name)) return filter;
  const Filter filter = find_text_filter(name);
  return filter != nullptr ? filter : find_list_filter(name);
}

}  // namespace moestro::jinja
