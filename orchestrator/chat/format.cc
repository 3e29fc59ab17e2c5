// Python's two ways to format: pattern % values, and pattern.format(...). What of them is not here is refused by name.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

constexpr int64_t kWidthMax = 10'000;

/// How one value is laid out: what both ways have in common.
struct Layout {
  std::string fill = " ";
  char align = 0;   // one of "<>^=", 0: as the type has it
  char sign = '-';  // one of "+- "
  bool alternate = false;
  char grouping = 0;  // ',' or '_'
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = 0;
};

[[noreturn]] void unsupported_format(const std::string& what) {
  fail_unsupported("the string format '" + what + "' is not supported");
}

int64_t take_number(std::string_view& text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || number > kWidthMax) fail_unsupported("a width beyond 10000 is not supported");
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  return number;
}

bool starts_with_digit(std::string_view text) {
  return !text.empty() && text[0] >= '0' && text[0] <= '9';
}

// Digits of a whole number without its sign.
std::string whole_digits(uint64_t number, char type) {
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  char buffer[70];
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof buffer, number, base).ptr);
  return type == 'X' ? upper(digits) : digits;
}

std::string real_digits(double number, const Layout& layout) {
  if (!std::isfinite(number)) {
    const std::string name = std::isnan(number) ? "nan" : "inf";
    return layout.type == 'F' || layout.type == 'E' || layout.type == 'G' ? upper(name) : name;
  }
  const char type = layout.type == '%' ? 'f' : layout.type;
  const std::string pattern = std::string(layout.alternate ? "%#.*" : "%.*") + type;
  const int precision = static_cast<int>(std::min<int64_t>(layout.precision.value_or(6), 300));
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, pattern.c_str(), precision, layout.type == '%' ? number * 100 : number);
  return buffer;
}

std::string grouped(const std::string& digits, const Layout& layout) {
  if (layout.grouping == 0) return digits;
  const size_t step = layout.type == 'x' || layout.type == 'X' || layout.type == 'o' || layout.type == 'b' ? 4 : 3;
  const size_t whole = std::min(digits.find_first_of(".e"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % step == 0) out += layout.grouping;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

// Sign or prefix, then the digits, padded between the two or around them.
std::string laid_out(const std::string& before, const std::string& body, const Layout& layout, char usual_align) {
  const char align = layout.align != 0 ? layout.align : usual_align;
  const Align around = align == '<' ? Align::kLeft : align == '^' ? Align::kCenter : Align::kRight;
  if (align != '=') return justify(before + body, layout.width, layout.fill, around);
  if (layout.grouping != 0 && layout.width > 0) unsupported_format("a group separator with padding after the sign");
  return before + justify(body, layout.width - static_cast<int64_t>(before.size()), layout.fill, Align::kRight);
}

std::string number_layout(const Value& value, const Layout& layout) {
  const std::string_view whole_types = "dxXob", real_types = "eEfFgG%";
  const char type = layout.type == 0 && value.is_whole() ? 'd' : layout.type;
  const bool whole = whole_types.find(type) != std::string_view::npos;
  if (!whole && real_types.find(type) == std::string_view::npos) unsupported_format(std::string(1, type));
  Layout typed = layout;
  typed.type = type;
  const bool negative = whole ? value.as_int() < 0 : std::signbit(value.as_real()) && !std::isnan(value.as_real());
  std::string before = negative ? "-" : layout.sign == '-' ? "" : std::string(1, layout.sign);
  if (whole) {
    if (layout.alternate && type != 'd') before += std::string("0") + type;
    const uint64_t number =
        negative ? 0 - static_cast<uint64_t>(value.as_int()) : static_cast<uint64_t>(value.as_int());
    return laid_out(before, grouped(whole_digits(number, type), typed), layout, '>');
  }
  const std::string digits = real_digits(std::fabs(value.as_real()), typed) + (type == '%' ? "%" : "");
  return laid_out(before, grouped(digits, typed), layout, '>');
}

std::string text_layout(std::string_view text, const Layout& layout, char usual_align) {
  if (layout.precision) {
    const auto offsets = character_offsets(text);
    text = text.substr(0, offsets[std::min(static_cast<size_t>(*layout.precision), offsets.size() - 1)]);
  }
  return laid_out("", std::string(text), layout, usual_align);
}

/// `%`: conversions one after another, or of the members of a mapping.
class PercentFormat {
 public:
  PercentFormat(Interpreter& interpreter, const Value& pattern, const Value& values)
      : interpreter_(interpreter), pattern_(pattern), values_(values), rest_(pattern.as_string()) {}

  Value run() {
    std::string out;
    while (!rest_.empty()) {
      const size_t percent = std::min(rest_.find('%'), rest_.size());
      out += rest_.substr(0, percent);
      rest_.remove_prefix(percent);
      if (!rest_.empty()) out += conversion();
    }
    const bool tuple = values_.is_list(List::Kind::kTuple);
    const bool mapping = values_.is_dict() || values_.is_list() || values_.is_undefined();  // may stay unused
    const size_t given = tuple ? values_.as_list().items.size() : mapping ? next_ : 1;
    if (next_ < given) fail("not all arguments converted during string formatting");
    interpreter_.charge_text(out.size());
    return Value::string_like(pattern_, std::move(out));
  }

 private:
  const Value& next_value() {
    const bool tuple = values_.is_list(List::Kind::kTuple);
    if (next_ >= (tuple ? values_.as_list().items.size() : 1)) fail("not enough arguments for format string");
    return tuple ? values_.as_list().items[next_++] : (++next_, values_);
  }

  Value member() {
    const size_t end = rest_.find(')');
    if (end == std::string_view::npos) fail("incomplete format key");
    if (!values_.is_dict()) fail("format requires a mapping");
    const std::string_view key = rest_.substr(1, end - 1);
    if (key.find('(') != std::string_view::npos) unsupported_format("%(...)");
    const Value* found = values_.as_dict().find(key);
    if (found == nullptr) fail("there is no key '" + std::string(key) + "' to format");
    rest_.remove_prefix(end + 1);
    return *found;
  }

  int64_t number_or_star() {
    if (!rest_.starts_with('*')) return starts_with_digit(rest_) ? take_number(rest_) : 0;
    rest_.remove_prefix(1);
    const int64_t number = int_argument("*", next_value());
    if (number < 0 || number > kWidthMax) unsupported_format("*, given " + std::to_string(number));
    return number;
  }

  std::string conversion() {
    rest_.remove_prefix(1);
    if (rest_.starts_with('%')) return rest_.remove_prefix(1), "%";
    std::optional<Value> value;
    if (rest_.starts_with('(')) value = member();
    Layout layout;
    layout.align = '>';
    bool zeros = false, left = false;
    for (; !rest_.empty() && std::string_view("#0- +").find(rest_[0]) != std::string_view::npos;
         rest_.remove_prefix(1)) {
      zeros = zeros || rest_[0] == '0';
      left = left || rest_[0] == '-';
      layout.alternate = layout.alternate || rest_[0] == '#';
      if (rest_[0] == '+' || (rest_[0] == ' ' && layout.sign != '+')) layout.sign = rest_[0];
    }
    layout.width = number_or_star();
    if (rest_.starts_with('.')) {
      rest_.remove_prefix(1);
      layout.precision = number_or_star();
    }
    if (rest_.empty()) fail("incomplete format");
    layout.type = rest_[0];
    rest_.remove_prefix(1);
    if (!value) value = next_value();
    interpreter_.charge(value->shape().weight + static_cast<uint64_t>(layout.width));
    if (left) layout.align = '<';
    return converted(*value, layout, zeros && !left);
  }

  std::string converted(const Value& value, Layout layout, bool zeros) {
    if (layout.type == 's' || layout.type == 'r') {
      std::string text;
      if (layout.type == 's')
        text = to_text(value);
      else
        append_repr(text, value);
      if (pattern_.is_markup()) text = layout.type == 's' && value.is_markup() ? text : escape_html(text);
      return text_layout(text, layout, '>');
    }
    if (layout.type == 'i' || layout.type == 'u') layout.type = 'd';
    const std::string kind = std::string("%") + layout.type;
    if (std::string_view("dxXoeEfFgG").find(layout.type) == std::string_view::npos) unsupported_format(kind);
    if (!value.is_number()) fail(kind + " format: a real number is required, not " + value.type_name());
    const bool whole = std::string_view("dxXo").find(layout.type) != std::string_view::npos;
    if (whole && layout.precision) unsupported_format(kind + " with a precision");
    if (zeros) layout.fill = "0", layout.align = '=';
    if (!whole || value.is_whole()) return number_layout(value, layout);
    if (layout.type != 'd' || !(std::fabs(value.as_real()) < 9e18)) unsupported_format(kind + " of this float");
    return number_layout(Value::integer(static_cast<int64_t>(value.as_real())), layout);
  }

  Interpreter& interpreter_;
  const Value &pattern_, &values_;
  std::string_view rest_;
  size_t next_ = 0;
};

Layout read_layout(std::string_view spec) {
  Layout layout;
  const std::string whole(spec);
  const auto accept = [&spec](char c) { return spec.starts_with(c) && (spec.remove_prefix(1), true); };
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t n = 1;
  if (!spec.empty()) code_point_at(spec, 0, &n);
  if (spec.size() > n && is_align(spec[n])) {
    layout.fill = spec.substr(0, n);
    layout.align = spec[n];
    spec.remove_prefix(n + 1);
  } else if (!spec.empty() && is_align(spec[0])) {
    layout.align = spec[0];
    spec.remove_prefix(1);
  }
  if (!spec.empty() && (spec[0] == '+' || spec[0] == '-' || spec[0] == ' ')) {
    layout.sign = spec[0];
    spec.remove_prefix(1);
  }
  layout.alternate = accept('#');
  if (spec.starts_with('0')) {
    spec.remove_prefix(1);
    if (layout.align == 0) layout.fill = "0", layout.align = '=';
  }
  if (starts_with_digit(spec)) layout.width = take_number(spec);
  if (!spec.empty() && (spec[0] == ',' || spec[0] == '_')) {
    layout.grouping = spec[0];
    spec.remove_prefix(1);
  }
  if (accept('.')) {
    if (!starts_with_digit(spec)) fail("Format specifier missing precision");
    layout.precision = take_number(spec);
  }
  if (spec.size() > 1) unsupported_format("{:" + whole + "}");
  if (!spec.empty()) layout.type = spec[0];
  return layout;
}

std::string format_value(const Value& value, std::string_view spec) {
  if (spec.empty()) return to_text(value);
  const Layout layout = read_layout(spec);
  if (value.is_string()) {
    if ((layout.type != 0 && layout.type != 's') || layout.align == '=' || layout.sign != '-' || layout.alternate ||
        layout.grouping != 0)
      unsupported_format("{:" + std::string(spec) + "}");
    return text_layout(value.as_string(), layout, '<');
  }
  if (value.is_number()) {
    if (layout.type == 0 && value.is_float()) unsupported_format("{:" + std::string(spec) + "}");
    if (value.is_float() && std::string_view("dxXob").find(layout.type) != std::string_view::npos)
      fail(std::string("Unknown format code '") + layout.type + "' for object of type 'float'");
    if (value.is_whole() && layout.precision && (layout.type == 0 || layout.type == 'd'))
      fail("Precision not allowed in integer format specifier");
    return number_layout(value, layout);
  }
  fail("unsupported format string passed to " + value.type_name() + ".__format__");
}

/// `.format()`: fields in braces.
class BraceFormat {
 public:
  BraceFormat(Interpreter& interpreter, const Value& pattern, const Arguments& arguments)
      : interpreter_(interpreter), pattern_(pattern), arguments_(arguments) {}

  Value run() { return Value::string_like(pattern_, formatted(pattern_.as_string(), 0)); }

 private:
  std::string formatted(std::string_view text, int depth) {
    if (depth > 1) fail("Max string recursion exceeded");
    std::string out;
    while (!text.empty()) {
      const size_t brace = std::min(text.find_first_of("{}"), text.size());
      out += text.substr(0, brace);
      text.remove_prefix(brace);
      if (text.empty()) break;
      if (text.size() > 1 && text[1] == text[0]) {
        out += text[0];
        text.remove_prefix(2);
        continue;
      }
      if (text[0] == '}') fail("Single '}' encountered in format string");
      const size_t end = end_of_field(text);
      out += field(text.substr(1, end - 1), depth);
      text.remove_prefix(end + 1);
    }
    interpreter_.charge_text(out.size());
    return out;
  }

  static size_t end_of_field(std::string_view text) {
    int open = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      open += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      if (open == 0) return i;
    }
    fail("expected '}' before end of string");
  }

  // NAME[!CONVERSION][:SPEC]
  std::string field(std::string_view text, int depth) {
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = lookup(text.substr(0, name_end));
    text.remove_prefix(name_end);
    if (text.starts_with('!')) {
      if (text.size() < 2 || (text.size() > 2 && text[2] != ':')) fail("a conversion is one character before ':'");
      value = convert(value, text[1]);
      text.remove_prefix(2);
    }
    const std::string spec = text.empty() ? "" : formatted(text.substr(1), depth + 1);
    interpreter_.charge(value.shape().weight);
    if (!pattern_.is_markup()) return format_value(value, spec);
    if (value.is_markup() && !spec.empty()) unsupported_format("{:" + spec + "} of a string from the filter 'safe'");
    return value.is_markup() ? value.as_string() : escape_html(format_value(value, spec));
  }

  static Value convert(const Value& value, char conversion) {
    if (conversion == 's') return value.is_string() ? value : Value::string(to_text(value));
    if (conversion != 'r') unsupported_format(std::string("{!") + conversion + "}");
    std::string text;
    append_repr(text, value);
    return Value::string(std::move(text));
  }

  // "", "0" or "name", then ".attribute" and "[key]".
  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    if (end == 0 && !name.empty())
      fail_unsupported("a string format that begins with '" + std::string(name) + "' is not supported");
    Value value = argument(name.substr(0, end));
    for (name.remove_prefix(end); !name.empty();) {
      if (name[0] == '.') fail_unsupported("an attribute in a string format is not supported");
      const size_t close = name.find(']');
      if (name[0] != '[' || close == std::string_view::npos || close == 1) fail("a field of a format is malformed");
      const std::string key(name.substr(1, close - 1));
      const bool number = key.find_first_not_of("0123456789") == std::string::npos && key.size() < 10;
      value = interpreter_.item(value, number ? Value::integer(std::stoll(key)) : Value::string(key));
      name.remove_prefix(close + 1);
    }
    return value;
  }

  const Value& argument(std::string_view name) {
    const bool number = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (!number) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      fail("there is no argument '" + std::string(name) + "' to format");
    }
    if (manual_ && *manual_ == name.empty()) fail("cannot switch between automatic and manual field numbering");
    manual_ = !name.empty();
    const size_t at = name.empty() ? next_++ : static_cast<size_t>(take_number(name));
    if (at >= arguments_.positional.size())
      fail("Replacement index " + std::to_string(at) + " out of range for positional args tuple");
    return arguments_.positional[at];
  }

  Interpreter& interpreter_;
  const Value& pattern_;
  const Arguments& arguments_;
  std::optional<bool> manual_;
  size_t next_ = 0;
};

}  // namespace

Value format_percent(Interpreter& interpreter, const Value& pattern, const Value& values) {
  return PercentFormat(interpreter, pattern, values).run();
}

Value format_braces(Interpreter& interpreter, const Value& pattern, Arguments& arguments) {
  return BraceFormat(interpreter, pattern, arguments).run();
}

}  // namespace moestro::jinja
