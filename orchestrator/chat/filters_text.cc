// Filters on text. A filter that Python applies with a string's own method keeps a markup one; one that joins parts
// does not.
#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {

Value escaped(Interpreter& interpreter, const Value& value) {
  if (value.is_markup()) return value;
  const Value text = soft_text(interpreter, value);
  return Value::markup(escape_html(text.as_string()));
}

namespace {

Value filter_trim(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("trim", arguments, {"chars"});
  const Value text = soft_text(interpreter, value);
  std::string_view kept = text.as_string();
  if (args[0] && !args[0]->is_none())
    kept = strip_set(kept, text_argument("trim", *args[0]), true, true);
  else
    kept = strip_left(strip_right(kept));
  return Value::string_like(text, std::string(kept));
}

template <std::string (*fn)(std::string_view)>
Value filter_text(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("filter", arguments, {});
  const Value text = soft_text(interpreter, value);
  return Value::string_like(text, fn(text.as_string()));
}

// Jinja's title: every word after white space or one of "-([{<" begins in upper case, the rest is lower case.
Value filter_title(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("title", arguments, {});
  const Value subject = soft_text(interpreter, value);
  const std::string_view text = subject.as_string();
  std::string out;
  const auto put_word = [&](std::string_view word) {
    if (word.empty()) return;
    size_t n = 1;
    code_point_at(word, 0, &n);
    out += upper(word.substr(0, n)) + lower(word.substr(n));
  };
  size_t word = 0;
  for (size_t i = 0, n = 1; i < text.size(); i += n) {
    const char32_t c = code_point_at(text, i, &n);
    if (!is_space(c) && c != '-' && c != '(' && c != '[' && c != '{' && c != '<') continue;
    put_word(text.substr(word, i - word));
    out += text.substr(i, n);
    word = i + n;
  }
  put_word(text.substr(word));
  return Value::string(std::move(out));
}

Value filter_replace(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("replace", arguments, {"old", "new", "count"}, 2);
  const Value subject = soft_text(interpreter, value), from = soft_text(interpreter, *args[0]),
              to = soft_text(interpreter, *args[1]);
  const std::string& text = subject.as_string();
  const size_t places = text.size() / std::max<size_t>(from.as_string().size(), 1) + 1;
  interpreter.charge_text(text.size() + places * to.as_string().size());
  const int64_t count = args[2] && !args[2]->is_none() ? int_argument("replace", *args[2]) : -1;
  return Value::string(replace_all(text, from.as_string(), to.as_string(), count));
}

Value filter_indent(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("indent", arguments, {"width", "first", "blank"});
  std::string pad(4, ' ');
  if (args[0] && args[0]->is_string())
    pad = args[0]->as_string();
  else if (args[0])
    pad = std::string(static_cast<size_t>(std::clamp<int64_t>(int_argument("indent", *args[0]), 0, 1000)), ' ');
  const bool first = args[1] && args[1]->truthy(), blank = args[2] && args[2]->truthy();
  interpreter.charge(value.shape().weight);
  const auto lines = split_lines(text_argument("indent", value) + "\n", false);
  interpreter.charge(lines.size() * (2 + pad.size() / 16));
  std::string out = first ? pad : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += pad;
    out += lines[i];
  }
  return Value::string_like(value, std::move(out));
}

Value filter_string(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("string", arguments, {});
  return soft_text(interpreter, value);
}

Value filter_safe(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("safe", arguments, {});
  const Value text = soft_text(interpreter, value);
  return Value::markup(text.as_string());
}

Value filter_escape(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("escape", arguments, {});
  return escaped(interpreter, value);
}

Value filter_forceescape(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("forceescape", arguments, {});
  const Value text = soft_text(interpreter, value);
  return Value::markup(escape_html(text.as_string()));
}

Value filter_wordcount(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("wordcount", arguments, {});
  const Value subject = soft_text(interpreter, value);
  const std::string& text = subject.as_string();
  int64_t words = 0;
  bool inside = false;
  for (size_t i = 0, n = 1; i < text.size(); i += n) {
    const bool letter = is_word(code_point_at(text, i, &n));
    words += letter && !inside;
    inside = letter;
  }
  return Value::integer(words);
}

Value filter_center(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("center", arguments, {"width"});
  const int64_t width = args[0] ? int_argument("center", *args[0]) : 80;
  const Value text = soft_text(interpreter, value);
  interpreter.charge_text(static_cast<size_t>(std::max<int64_t>(width, 0)));
  return Value::string_like(text, justify(text.as_string(), width, " ", Align::kMethodCenter));
}

Value filter_format(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const Value pattern = soft_text(interpreter, value);
  if (arguments.named.empty())
    return format_percent(interpreter, pattern, Value::list(std::move(arguments.positional), List::Kind::kTuple));
  if (!arguments.positional.empty()) fail("can't handle positional and keyword arguments at the same time");
  std::vector<std::pair<Value, Value>> named;
  for (auto& [name, each] : arguments.named) named.emplace_back(Value::string(name), std::move(each));
  return format_percent(interpreter, pattern, Value::dict(std::move(named)));
}

constexpr Named<Filter> kTextFilters[] = {
    {"trim", filter_trim},
    {"upper", filter_text<upper>},
    {"lower", filter_text<lower>},
    {"title", filter_title},
    {"capitalize", filter_text<capitalize>},
    {"replace", filter_replace},
    {"indent", filter_indent},
    {"string", filter_string},
    {"safe", filter_safe},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"forceescape", filter_forceescape},
    {"wordcount", filter_wordcount},
    {"center", filter_center},
    {"format", filter_format},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  return find_named(kTextFilters, name);
}

}  // namespace moestro::jinja
