#include <algorithm>
#include <charconv>
#include <cmath>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
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
    if (!bound[i])
      fail("'" + std::string(what) + "' needs the argument '" + std::string(names.begin()[i]) + "'");
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

namespace {

std::string text_of(Interpreter& interpreter, const Value& value) {
  interpreter.charge(value.shape().weight);
  return to_text(value);
}

Value filter_trim(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("trim", arguments, {"chars"});
  const std::string text = text_of(interpreter, value);
  if (args[0] && !args[0]->is_none())
    return Value::string(std::string(strip_set(text, text_argument("trim", *args[0]), true, true)));
  return Value::string(std::string(strip_left(strip_right(text))));
}

template <std::string (*fn)(std::string_view)>
Value filter_text(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("filter", arguments, {});
  return Value::string(fn(text_of(interpreter, value)));
}

// Jinja's title: every word after white space or one of "-([{<" begins in upper case, the rest is lower case.
std::string title_filter(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    out += capitalize(word);
    word.clear();
  };
  for (size_t i = 0; i < text.size();) {
    size_t n = 1;
    const char32_t c = code_point_at(text, i, &n);
    const bool separator = is_space(c) || c == '-' || c == '(' || c == '[' || c == '{' || c == '<';
    if (separator) flush();
    (separator ? out : word).append(text.substr(i, n));
    i += n;
  }
  flush();
  return out;
}

Value filter_tojson(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  // transformers' tojson takes ensure_ascii first, Jinja's own indent; templates always name them.
  int indent = -1;
  if (args[1] && !args[1]->is_none())
    indent = static_cast<int>(std::clamp<int64_t>(int_argument("tojson", *args[1]), 0, 64));
  if (args[0] && args[0]->truthy()) fail_unsupported("tojson(ensure_ascii=true) is not supported");
  std::string item = indent < 0 ? ", " : ",", key = ": ";
  if (args[2] && !args[2]->is_none()) {
    if (!args[2]->is_list() || args[2]->as_list().items.size() != 2) fail("'tojson' needs two separators");
    item = text_argument("tojson", args[2]->as_list().items[0]);
    key = text_argument("tojson", args[2]->as_list().items[1]);
  }
  interpreter.charge(value.shape().weight * static_cast<uint64_t>(2 + std::max(indent, 0)));
  std::string text = to_json(value, indent, item, key, args[3] && args[3]->truthy());
  interpreter.charge_text(text.size());
  return Value::string(std::move(text));
}

Value filter_default(Interpreter&, const Value& value, Arguments& arguments) {
  const auto args = bind("default", arguments, {"default_value", "boolean"});
  const bool use_default = value.is_undefined() || (args[1] && args[1]->truthy() && !value.truthy());
  if (!use_default) return value;
  return args[0] ? *args[0] : Value::string("");
}

Value filter_replace(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("replace", arguments, {"old", "new", "count"}, 2);
  const std::string text = text_of(interpreter, value);
  const std::string from = to_text(*args[0]), to = to_text(*args[1]);
  interpreter.charge_text(text.size() + (text.size() / std::max<size_t>(from.size(), 1) + 1) * to.size());
  const int64_t count = args[2] && !args[2]->is_none() ? int_argument("replace", *args[2]) : -1;
  return Value::string(replace_all(text, from, to, count));
}

Value filter_indent(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("indent", arguments, {"width", "first", "blank"});
  std::string pad(4, ' ');
  if (args[0]) {
    if (args[0]->is_string())
      pad = args[0]->as_string();
    else
      pad = std::string(static_cast<size_t>(std::clamp<int64_t>(int_argument("indent", *args[0]), 0, 1000)),
                        ' ');
  }
  const bool first = args[1] && args[1]->truthy(), blank = args[2] && args[2]->truthy();
  const std::string text = text_of(interpreter, value);
  interpreter.charge(static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')) *
                     (1 + pad.size() / 16));
  std::string out;
  for (size_t begin = 0, line = 0; begin <= text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (line > 0) out += '\n';
    if ((line == 0 ? first : true) && (end > begin || blank || line == 0)) out += pad;
    out += text.substr(begin, end - begin);
    begin = end + 1;
  }
  return Value::string(std::move(out));
}

Value filter_int(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("int", arguments, {"default", "base"});
  if (args[1]) fail_unsupported("int with a base is not supported");
  const Value fallback = args[0] ? *args[0] : Value::integer(0);
  if (value.is_whole()) return Value::integer(value.as_int());
  double real = NAN;
  if (value.is_float()) real = value.as_real();
  if (value.is_string()) {
    const std::string text(strip_left(strip_right(text_of(interpreter, value))));
    const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
    int64_t whole = 0;
    if (const auto parsed = std::from_chars(begin, end, whole); parsed.ec == std::errc() && parsed.ptr == end)
      return Value::integer(whole);
    double parsed_real = 0;
    if (const auto parsed = std::from_chars(begin, end, parsed_real);
        parsed.ec == std::errc() && parsed.ptr == end)
      real = parsed_real;
  }
  if (std::isnan(real) || std::fabs(real) > 9e18) return fallback;
  return Value::integer(static_cast<int64_t>(real));
}

Value filter_float(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("float", arguments, {"default"});
  if (value.is_number()) return Value::real(value.as_real());
  if (value.is_string()) {
    const std::string text(strip_left(strip_right(text_of(interpreter, value))));
    const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
    double real = 0;
    if (const auto parsed = std::from_chars(begin, end, real); parsed.ec == std::errc() && parsed.ptr == end)
      return Value::real(real);
  }
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
  const double scale = std::pow(10.0, static_cast<double>(precision)), x = value.as_real();
  if (method == "ceil") return Value::real(std::ceil(x * scale) / scale);
  if (method == "floor") return Value::real(std::floor(x * scale) / scale);
  if (method != "common") fail("method must be common, ceil or floor");
  char text[400];  // printf rounds the exact value to even, as Python's round does
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(precision), x);
  return Value::real(std::strtod(text, nullptr));
}

Value filter_string(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("string", arguments, {});
  return value.is_string() ? value : Value::string(text_of(interpreter, value));
}

Value filter_escape(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("escape", arguments, {});
  std::string out;
  for (const char c : text_of(interpreter, value)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return Value::string(std::move(out));
}

Value filter_wordcount(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("wordcount", arguments, {});
  const std::string text = text_of(interpreter, value);
  int64_t words = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    size_t n = 1;
    const bool space = is_space(code_point_at(text, i, &n));
    words += !space && !inside;
    inside = !space;
    i += n;
  }
  return Value::integer(words);
}

struct Entry {
  std::string_view name;
  Filter filter;
};
constexpr Entry kFilters[] = {
    {"trim", filter_trim},
    {"upper", filter_text<upper>},
    {"lower", filter_text<lower>},
    {"title", filter_text<title_filter>},
    {"capitalize", filter_text<capitalize>},
    {"tojson", filter_tojson},
    {"default", filter_default},
    {"d", filter_default},
    {"replace", filter_replace},
    {"indent", filter_indent},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
    {"string", filter_string},
    {"safe", filter_string},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"wordcount", filter_wordcount},
};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter;
  }
  return find_list_filter(name);
}

}  // namespace moestro::jinja
