// Methods of strings. Those that make text of a markup string make a markup one.
#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

Value list_like(Interpreter& interpreter, const Value& model, std::vector<std::string> parts) {
  interpreter.charge(4 * parts.size());
  std::vector<Value> items;
  for (std::string& part : parts) items.push_back(Value::string_like(model, std::move(part)));
  return Value::list(std::move(items));
}

// What is put into a markup string is escaped first.
Value joined_to(Interpreter& interpreter, const Value& self, const Value& part) {
  if (!self.is_markup()) return part;
  if (!part.is_string())
    fail_unsupported("putting a " + part.type_name() + " into a string from 'safe' is not supported");
  return escaped(interpreter, part);
}

template <bool left, bool right>
Value method_strip(Interpreter&, const Value& self, Arguments& arguments) {
  const auto args = bind("strip", arguments, {"chars"});
  std::string_view text = self.as_string();
  if (args[0] && !args[0]->is_none())
    return Value::string_like(self, std::string(strip_set(text, text_argument("strip", *args[0]), left, right)));
  if (left) text = strip_left(text);
  if (right) text = strip_right(text);
  return Value::string_like(self, std::string(text));
}

template <std::string (*fn)(std::string_view)>
Value method_text(Interpreter&, const Value& self, Arguments& arguments) {
  bind("method", arguments, {});
  return Value::string_like(self, fn(self.as_string()));
}

template <CharClass c>
Value method_class(Interpreter&, const Value& self, Arguments& arguments) {
  bind("method", arguments, {});
  return Value::boolean(all_of_class(self.as_string(), c));
}

// Words between runs of white space; after `limit` splits the rest stays whole.
std::vector<std::string> split_words(std::string_view text, int64_t limit) {
  std::vector<std::string> parts;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.emplace_back(strip_right(text));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t n = 1;
      if (is_space(code_point_at(text, end, &n))) break;
      end += n;
    }
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at = text.find(separator); at != std::string_view::npos && limit != 0;
       at = text.find(separator, from), --limit) {
    parts.emplace_back(text.substr(from, at - from));
    from = at + separator.size();
  }
  parts.emplace_back(text.substr(from));
  return parts;
}

std::vector<std::string> split_at_from_right(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string> parts;
  for (; limit != 0; --limit) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_right>
Value method_split(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("split", arguments, {"sep", "maxsplit"});
  const int64_t limit = args[1] ? int_argument("split", *args[1]) : -1;
  std::vector<std::string> parts;
  if (!args[0] || args[0]->is_none()) {
    if (from_right && limit >= 0) fail_unsupported("rsplit at white space with a limit is not supported");
    parts = split_words(self.as_string(), limit);
  } else {
    const std::string& separator = text_argument("split", *args[0]);
    if (separator.empty()) fail("empty separator");
    parts = from_right ? split_at_from_right(self.as_string(), separator, limit)
                       : split_at(self.as_string(), separator, limit);
  }
  return list_like(interpreter, self, std::move(parts));
}

Value method_splitlines(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("splitlines", arguments, {"keepends"});
  const bool keep = args[0] && args[0]->truthy();
  return list_like(interpreter, self, split_lines(self.as_string(), keep));
}

// The arguments of a search; those that bound it to a part of the string are not supported.
Value bind_search(std::string_view what, const Arguments& arguments) {
  const auto args = bind(what, arguments, {"sub", "start", "end"}, 1);
  if (args[1] || args[2]) fail_unsupported("'" + std::string(what) + "' with a start or end is not supported");
  return *args[0];
}

// startswith and endswith take one string or a tuple of them.
template <bool start>
Value method_affix(Interpreter&, const Value& self, Arguments& arguments) {
  const Value wanted = bind_search(start ? "startswith" : "endswith", arguments);
  const auto matches = [&](const Value& affix) {
    const std::string& text = text_argument(start ? "startswith" : "endswith", affix);
    return start ? self.as_string().starts_with(text) : self.as_string().ends_with(text);
  };
  if (!wanted.is_list(List::Kind::kTuple)) return Value::boolean(matches(wanted));
  const auto& all = wanted.as_list().items;
  return Value::boolean(std::any_of(all.begin(), all.end(), matches));
}

template <bool prefix>
Value method_remove(Interpreter&, const Value& self, Arguments& arguments) {
  const auto args = bind("removeprefix", arguments, {"affix"}, 1);
  const std::string& affix = text_argument("removeprefix", *args[0]);
  const std::string& text = self.as_string();
  if (prefix && text.starts_with(affix)) return Value::string_like(self, text.substr(affix.size()));
  if (!prefix && text.ends_with(affix)) return Value::string_like(self, text.substr(0, text.size() - affix.size()));
  return self;
}

Value method_replace(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("replace", arguments, {"old", "new", "count"}, 2);
  const Value with = joined_to(interpreter, self, *args[1]);
  const std::string &from = text_argument("replace", *args[0]), &to = text_argument("replace", with);
  const int64_t count = args[2] ? int_argument("replace", *args[2]) : -1;
  const std::string& text = self.as_string();
  interpreter.charge_text((text.size() / std::max<size_t>(from.size(), 1) + 1) * to.size());
  return Value::string_like(self, replace_all(text, from, to, count));
}

template <bool from_right, bool must>
Value method_find(Interpreter&, const Value& self, Arguments& arguments) {
  const Value wanted = bind_search("find", arguments);
  const std::string& sub = text_argument("find", wanted);
  const size_t at = from_right ? self.as_string().rfind(sub) : self.as_string().find(sub);
  if (at == std::string::npos) {
    if (must) fail("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<int64_t>(character_count(std::string_view(self.as_string()).substr(0, at))));
}

Value method_count(Interpreter&, const Value& self, Arguments& arguments) {
  const Value wanted = bind_search("count", arguments);
  const std::string& sub = text_argument("count", wanted);
  if (sub.empty()) return Value::integer(static_cast<int64_t>(character_count(self.as_string())) + 1);
  int64_t count = 0;
  for (size_t at = self.as_string().find(sub); at != std::string::npos;
       at = self.as_string().find(sub, at + sub.size()))
    ++count;
  return Value::integer(count);
}

Value method_join(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("join", arguments, {"iterable"}, 1);
  const Items items = iterate(*args[0]);
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += self.as_string();
    const Value part = self.is_markup() ? escaped(interpreter, items[i]) : items[i];
    out += text_argument("join", part);
    interpreter.charge_text(self.as_string().size() + part.as_string().size());
  }
  return Value::string_like(self, std::move(out));
}

template <bool from_right>
Value method_partition(Interpreter&, const Value& self, Arguments& arguments) {
  const auto args = bind("partition", arguments, {"sep"}, 1);
  const std::string &text = self.as_string(), &separator = text_argument("partition", *args[0]);
  if (separator.empty()) fail("empty separator");
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  const auto part = [&](std::string piece) { return Value::string_like(self, std::move(piece)); };
  if (at == std::string::npos && from_right) return Value::list({part(""), part(""), self}, List::Kind::kTuple);
  if (at == std::string::npos) return Value::list({self, part(""), part("")}, List::Kind::kTuple);
  return Value::list({part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))},
                     List::Kind::kTuple);
}

template <Align align>
Value method_justify(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("justify", arguments, {"width", "fillchar"}, 1);
  const int64_t width = int_argument("justify", *args[0]);
  const std::string fill = args[1] ? text_argument("justify", *args[1]) : " ";
  if (character_count(fill) != 1) fail("the fill character must be exactly one character long");
  if (self.is_markup()) fail_unsupported("padding a string from the filter 'safe' is not supported");
  interpreter.charge_text(static_cast<size_t>(std::max<int64_t>(width, 0)) * fill.size());
  return Value::string(justify(self.as_string(), width, fill, align));
}

Value method_zfill(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("zfill", arguments, {"width"}, 1);
  const int64_t width = int_argument("zfill", *args[0]);
  interpreter.charge_text(static_cast<size_t>(std::max<int64_t>(width, 0)));
  const std::string& text = self.as_string();
  const std::string sign = text.starts_with('-') || text.starts_with('+') ? text.substr(0, 1) : "";
  return Value::string_like(
      self, sign + justify(text.substr(sign.size()), width - static_cast<int64_t>(sign.size()), "0", Align::kRight));
}

Value method_format(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return format_braces(interpreter, self, arguments);
}

Value method_is_ascii(Interpreter&, const Value& self, Arguments& arguments) {
  bind("isascii", arguments, {});
  const std::string& text = self.as_string();
  return Value::boolean(std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; }));
}

constexpr Method kStringMethods[] = {
    {"strip", method_strip<true, true>},
    {"lstrip", method_strip<true, false>},
    {"rstrip", method_strip<false, true>},
    {"upper", method_text<upper>},
    {"lower", method_text<lower>},
    {"title", method_text<title>},
    {"capitalize", method_text<capitalize>},
    {"split", method_split<false>},
    {"rsplit", method_split<true>},
    {"splitlines", method_splitlines},
    {"startswith", method_affix<true>},
    {"endswith", method_affix<false>},
    {"removeprefix", method_remove<true>},
    {"removesuffix", method_remove<false>},
    {"replace", method_replace},
    {"find", method_find<false, false>},
    {"rfind", method_find<true, false>},
    {"index", method_find<false, true>},
    {"rindex", method_find<true, true>},
    {"count", method_count},
    {"join", method_join},
    {"partition", method_partition<false>},
    {"rpartition", method_partition<true>},
    {"ljust", method_justify<Align::kLeft>},
    {"rjust", method_justify<Align::kRight>},
    {"center", method_justify<Align::kMethodCenter>},
    {"zfill", method_zfill},
    {"format", method_format},
    {"isascii", method_is_ascii},
    {"isalpha", method_class<CharClass::kAlpha>},
    {"isdigit", method_class<CharClass::kDigit>},
    {"isalnum", method_class<CharClass::kAlnum>},
    {"isspace", method_class<CharClass::kSpace>},
    {"isupper", method_class<CharClass::kUpper>},
    {"islower", method_class<CharClass::kLower>},
};
constexpr std::string_view kUnsupportedMethods[] = {
    "casefold",    "encode",  "expandtabs", "format_map", "isdecimal", "isidentifier", "isnumeric",
    "isprintable", "istitle", "maketrans",  "swapcase",   "translate", "unescape",     "striptags"};

}  // namespace

std::optional<Value> find_text_method(const Value& self, std::string_view name) {
  if (auto method = bound_method(kStringMethods, self, name)) return method;
  if (std::find(std::begin(kUnsupportedMethods), std::end(kUnsupportedMethods), name) != std::end(kUnsupportedMethods))
    fail_unsupported("the string method '" + std::string(name) + "' is not supported");
  return std::nullopt;
}

}  // namespace moestro::jinja
