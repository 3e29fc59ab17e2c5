// Methods of strings, lists and mappings.
#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

using Method = Value (*)(Interpreter&, const Value&, Arguments&);

template <bool left, bool right>
Value method_strip(Interpreter&, const Value& self, Arguments& arguments) {
  const auto args = bind("strip", arguments, {"chars"});
  std::string_view text = self.as_string();
  if (args[0] && !args[0]->is_none())
    return Value::string(std::string(strip_set(text, text_argument("strip", *args[0]), left, right)));
  if (left) text = strip_left(text);
  if (right) text = strip_right(text);
  return Value::string(std::string(text));
}

template <std::string (*fn)(std::string_view)>
Value method_text(Interpreter&, const Value& self, Arguments& arguments) {
  bind("method", arguments, {});
  return Value::string(fn(self.as_string()));
}

template <CharClass c>
Value method_class(Interpreter&, const Value& self, Arguments& arguments) {
  bind("method", arguments, {});
  return Value::boolean(all_of_class(self.as_string(), c));
}

// Words between runs of white space; after `limit` splits the rest stays whole.
std::vector<Value> split_words(std::string_view text, int64_t limit) {
  std::vector<Value> parts;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(Value::string(std::string(strip_right(text))));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t n = 1;
      if (is_space(code_point_at(text, end, &n))) break;
      end += n;
    }
    parts.push_back(Value::string(std::string(text.substr(0, end))));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<Value> split_at(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<Value> parts;
  size_t from = 0;
  for (size_t at = text.find(separator); at != std::string_view::npos && limit != 0;
       at = text.find(separator, from), --limit) {
    parts.push_back(Value::string(std::string(text.substr(from, at - from))));
    from = at + separator.size();
  }
  parts.push_back(Value::string(std::string(text.substr(from))));
  return parts;
}

std::vector<Value> split_at_from_right(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<Value> parts;
  for (; limit != 0; --limit) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(Value::string(std::string(text.substr(at + separator.size()))));
    text = text.substr(0, at);
  }
  parts.push_back(Value::string(std::string(text)));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool from_right>
Value method_split(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("split", arguments, {"sep", "maxsplit"});
  const int64_t limit = args[1] ? int_argument("split", *args[1]) : -1;
  std::vector<Value> parts;
  if (!args[0] || args[0]->is_none()) {
    if (from_right && limit >= 0) fail_unsupported("rsplit at white space with a limit is not supported");
    parts = split_words(self.as_string(), limit);
  } else {
    const std::string& separator = text_argument("split", *args[0]);
    if (separator.empty()) fail("empty separator");
    parts = from_right ? split_at_from_right(self.as_string(), separator, limit)
                       : split_at(self.as_string(), separator, limit);
  }
  interpreter.charge(4 * parts.size());
  return Value::list(std::move(parts));
}

Value method_splitlines(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("splitlines", arguments, {"keepends"});
  const bool keep = args[0] && args[0]->truthy();
  const std::string& text = self.as_string();
  std::vector<Value> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin, next = text.size();
    for (size_t n = 1; end < text.size(); end += n) {
      const char32_t c = code_point_at(text, end, &n);
      if ((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029) {
        next = end + n + (c == '\r' && end + 1 < text.size() && text[end + 1] == '\n' ? 1 : 0);
        break;
      }
    }
    lines.push_back(Value::string(text.substr(begin, (keep ? next : end) - begin)));
    begin = next;
  }
  interpreter.charge(4 * lines.size());
  return Value::list(std::move(lines));
}

// startswith and endswith take one string or a tuple of them.
template <bool start>
Value method_affix(Interpreter&, const Value& self, Arguments& arguments) {
  const auto args = bind(start ? "startswith" : "endswith", arguments, {"affix"}, 1);
  const auto matches = [&](const Value& affix) {
    const std::string& text = text_argument(start ? "startswith" : "endswith", affix);
    return start ? self.as_string().starts_with(text) : self.as_string().ends_with(text);
  };
  if (!args[0]->is_list()) return Value::boolean(matches(*args[0]));
  const auto& all = args[0]->as_list().items;
  return Value::boolean(std::any_of(all.begin(), all.end(), matches));
}

template <bool prefix>
Value method_remove(Interpreter&, const Value& self, Arguments& arguments) {
  const auto args = bind("removeprefix", arguments, {"affix"}, 1);
  const std::string& affix = text_argument("removeprefix", *args[0]);
  const std::string& text = self.as_string();
  if (prefix && text.starts_with(affix)) return Value::string(text.substr(affix.size()));
  if (!prefix && text.ends_with(affix)) return Value::string(text.substr(0, text.size() - affix.size()));
  return self;
}

Value method_replace(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("replace", arguments, {"old", "new", "count"}, 2);
  const std::string &from = text_argument("replace", *args[0]), &to = text_argument("replace", *args[1]);
  const int64_t count = args[2] ? int_argument("replace", *args[2]) : -1;
  const std::string& text = self.as_string();
  interpreter.charge_text((text.size() / std::max<size_t>(from.size(), 1) + 1) * to.size());
  return Value::string(replace_all(text, from, to, count));
}

template <bool from_right, bool must>
Value method_find(Interpreter&, const Value& self, Arguments& arguments) {
  const auto args = bind("find", arguments, {"sub"}, 1);
  const std::string& sub = text_argument("find", *args[0]);
  const size_t at = from_right ? self.as_string().rfind(sub) : self.as_string().find(sub);
  if (at == std::string::npos) {
    if (must) fail("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(
      static_cast<int64_t>(character_count(std::string_view(self.as_string()).substr(0, at))));
}

Value method_count(Interpreter&, const Value& self, Arguments& arguments) {
  const auto args = bind("count", arguments, {"sub"}, 1);
  const std::string& sub = text_argument("count", *args[0]);
  if (sub.empty()) return Value::integer(static_cast<int64_t>(character_count(self.as_string())) + 1);
  int64_t count = 0;
  for (size_t at = self.as_string().find(sub); at != std::string::npos;
       at = self.as_string().find(sub, at + sub.size()))
    ++count;
  return Value::integer(count);
}

Value method_join(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("join", arguments, {"iterable"}, 1);
  const auto items = iterate(*args[0]);
  std::string out;
  for (size_t i = 0; i < items->items.size(); ++i) {
    if (i > 0) out += self.as_string();
    out += text_argument("join", items->items[i]);
    interpreter.charge_text(self.as_string().size() + items->items[i].as_string().size());
  }
  return Value::string(std::move(out));
}

Value method_keys(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  bind("keys", arguments, {});
  interpreter.charge(self.as_dict().items.size());
  return Value::list(iterate(self)->items);
}

Value method_values(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  bind("values", arguments, {});
  interpreter.charge(self.as_dict().items.size());
  std::vector<Value> values;
  for (const auto& [key, value] : self.as_dict().items) values.push_back(value);
  return Value::list(std::move(values));
}

Value method_items(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  bind("items", arguments, {});
  interpreter.charge(self.as_dict().items.size());
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.as_dict().items)
    pairs.push_back(Value::list({key, value}, List::Kind::kTuple));
  return Value::list(std::move(pairs));
}

Value method_get(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("get", arguments, {"key", "default"}, 1);
  interpreter.charge(self.as_dict().items.size() / 16);
  if (const Value* found = self.as_dict().find(*args[0])) return *found;
  return args[1] ? *args[1] : Value::none();
}

Value method_copy(Interpreter&, const Value& self, Arguments& arguments) {
  bind("copy", arguments, {});
  return self;
}

Value method_list_index(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("index", arguments, {"value"}, 1);
  interpreter.charge(self.shape().weight);
  const auto& items = self.as_list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], *args[0])) return Value::integer(static_cast<int64_t>(i));
  }
  fail("the value is not in the list");
}

Value method_list_count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("count", arguments, {"value"}, 1);
  interpreter.charge(self.shape().weight);
  const auto& items = self.as_list().items;
  return Value::integer(
      std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(item, *args[0]); }));
}

struct Entry {
  std::string_view name;
  Method method;
};
constexpr Entry kStringMethods[] = {
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
    {"isalpha", method_class<CharClass::kAlpha>},
    {"isdigit", method_class<CharClass::kDigit>},
    {"isalnum", method_class<CharClass::kAlnum>},
    {"isspace", method_class<CharClass::kSpace>},
    {"isupper", method_class<CharClass::kUpper>},
    {"islower", method_class<CharClass::kLower>},
};
constexpr Entry kDictMethods[] = {{"keys", method_keys},
                                  {"values", method_values},
                                  {"items", method_items},
                                  {"get", method_get},
                                  {"copy", method_copy}};
constexpr Entry kListMethods[] = {
    {"index", method_list_index}, {"count", method_list_count}, {"copy", method_copy}};
// The sandbox is immutable: Jinja refuses these too.
constexpr std::string_view kListMutators[] = {"append", "extend", "insert",  "pop",
                                              "remove", "clear",  "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"update", "pop", "popitem", "setdefault", "clear"};

template <typename Table>
Value bound(const Table& table, const Value& self, std::string_view name) {
  for (const Entry& entry : table) {
    if (entry.name != name) continue;
    return Value::callable(std::string(name),
                           [self, method = entry.method](Interpreter& interpreter, Arguments& arguments) {
                             if (self.is_string()) interpreter.charge_text(self.as_string().size());
                             return method(interpreter, self, arguments);
                           });
  }
  return {};
}

template <typename Names>
void refuse_mutation(const Names& names, const Value& self, std::string_view name) {
  if (std::find(std::begin(names), std::end(names), name) != std::end(names)) {
    fail("access to attribute '" + std::string(name) + "' of '" + self.type_name() + "' object is unsafe");
  }
}

}  // namespace

Value find_method(const Value& self, std::string_view name) {
  if (self.is_string()) {
    Value method = bound(kStringMethods, self, name);
    if (method.is_undefined() &&
        (name == "format" || name == "zfill" || name == "ljust" || name == "rjust" || name == "center" ||
         name == "partition" || name == "rpartition" || name == "swapcase" || name == "encode" ||
         name == "casefold" || name == "translate" || name == "format_map" || name == "expandtabs")) {
      fail_unsupported("the string method '" + std::string(name) + "' is not supported");
    }
    return method;
  }
  if (self.is_dict()) {
    refuse_mutation(kDictMutators, self, name);
    return bound(kDictMethods, self, name);
  }
  if (self.is_list()) {
    refuse_mutation(kListMutators, self, name);
    return bound(kListMethods, self, name);
  }
  return {};
}

}  // namespace moestro::jinja
