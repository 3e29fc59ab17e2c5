// Filters on sequences and mappings.
#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

std::shared_ptr<const List> items_of(Interpreter& interpreter, const Value& value) {
  if (value.is_string()) interpreter.charge(value.as_string().size());
  auto items = iterate(value);
  interpreter.charge(items->items.size());
  return items;
}

Value generator(std::vector<Value> items) {
  return Value::list(std::move(items), List::Kind::kGenerator);
}

// "a.b.0": attributes and positions, one after another.
Value path_of(Interpreter& interpreter, Value value, const Value& path) {
  if (path.is_whole()) return interpreter.item(value, path);
  const std::string& text = text_argument("attribute", path);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = interpreter.item(value, number ? Value::integer(std::stoll(part)) : Value::string(part));
    begin = end + 1;
  }
  return value;
}

Value filter_length(Interpreter&, const Value& value, Arguments& arguments) {
  bind("length", arguments, {});
  return Value::integer(length_of(value));
}

Value filter_first(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("first", arguments, {});
  if (value.is_string() && !value.as_string().empty()) return interpreter.item(value, Value::integer(0));
  const auto items = iterate(value);
  return items->items.empty() ? Value::undefined("No first item, sequence was empty.") : items->items.front();
}

Value filter_last(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("last", arguments, {});
  if (value.is_string() && !value.as_string().empty()) return interpreter.item(value, Value::integer(-1));
  const auto items = iterate(value);
  return items->items.empty() ? Value::undefined("No last item, sequence was empty.") : items->items.back();
}

Value filter_join(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("join", arguments, {"d", "attribute"});
  const std::string separator = args[0] ? to_text(*args[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : items_of(interpreter, value)->items) {
    if (!first) out += separator;
    first = false;
    const Value part = args[1] && !args[1]->is_none() ? path_of(interpreter, item, *args[1]) : item;
    interpreter.charge(part.shape().weight + separator.size() / 16);
    out += to_text(part);
  }
  return Value::string(std::move(out));
}

Value filter_list(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("list", arguments, {});
  return Value::list(items_of(interpreter, value)->items);
}

Value filter_items(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("items", arguments, {});
  if (value.is_undefined()) return generator({});
  if (!value.is_dict()) fail("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, item] : value.as_dict().items)
    pairs.push_back(Value::list({key, item}, List::Kind::kTuple));
  interpreter.charge(pairs.size());
  return generator(std::move(pairs));
}

Value filter_map(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto items = items_of(interpreter, value);
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const auto args = bind("map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : items->items) {
      Value part = path_of(interpreter, item, *args[0]);
      if (part.is_undefined() && args[1]) part = *args[1];
      out.push_back(std::move(part));
    }
    return generator(std::move(out));
  }
  const std::string name = text_argument("map", arguments.positional[0]);
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items->items) {
    Arguments each = rest;
    out.push_back(interpreter.apply_filter(name, item, each));
  }
  return generator(std::move(out));
}

// select, reject (by a test of the item) and selectattr, rejectattr (of an attribute of it).
template <bool wanted, bool by_attribute>
Value filter_select(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  Arguments rest = arguments;
  Value path;
  if (by_attribute) {
    if (rest.positional.empty()) fail("Missing parameter for attribute name");
    path = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    test = text_argument("select", rest.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> out;
  for (const Value& item : items_of(interpreter, value)->items) {
    const Value subject = by_attribute ? path_of(interpreter, item, path) : item;
    Arguments each = rest;
    const bool holds = test.empty() ? subject.truthy() : interpreter.apply_test(test, subject, each);
    if (holds == wanted) out.push_back(item);
  }
  return generator(std::move(out));
}

// Strings are compared without regard to case unless it is asked for.
Value sort_key(Interpreter& interpreter, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  interpreter.charge_text(value.as_string().size());
  return Value::string(lower(value.as_string()));
}

std::vector<Value> sorted(Interpreter& interpreter, std::vector<std::pair<Value, Value>> keyed,
                          bool reverse) {
  uint64_t weight = 0;
  for (const auto& [key, item] : keyed) weight += key.shape().weight;
  interpreter.charge(weight * 20);
  // Equal items keep their order, in reverse too, as in Python.
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return out;
}

Value filter_sort(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool sensitive = args[1] && args[1]->truthy();
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items_of(interpreter, value)->items) {
    const Value key = args[2] && !args[2]->is_none() ? path_of(interpreter, item, *args[2]) : item;
    keyed.emplace_back(sort_key(interpreter, key, sensitive), item);
  }
  return Value::list(sorted(interpreter, std::move(keyed), args[0] && args[0]->truthy()));
}

Value filter_dictsort(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!value.is_dict()) fail("'dictsort' needs a mapping, not " + value.type_name());
  const bool sensitive = args[0] && args[0]->truthy(), by_value = args[1] && to_text(*args[1]) == "value";
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.as_dict().items) {
    keyed.emplace_back(sort_key(interpreter, by_value ? item : key, sensitive),
                       Value::list({key, item}, List::Kind::kTuple));
  }
  return Value::list(sorted(interpreter, std::move(keyed), args[2] && args[2]->truthy()));
}

Value filter_reverse(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("reverse", arguments, {});
  std::vector<Value> items = items_of(interpreter, value)->items;
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) return generator(std::move(items));
  std::string text;
  for (const Value& item : items) text += item.as_string();
  return Value::string(std::move(text));
}

Value filter_unique(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("unique", arguments, {"case_sensitive", "attribute"});
  const bool sensitive = args[0] && args[0]->truthy();
  std::vector<Value> keys, out;
  for (const Value& item : items_of(interpreter, value)->items) {
    const Value part = args[1] && !args[1]->is_none() ? path_of(interpreter, item, *args[1]) : item;
    const Value key = sort_key(interpreter, part, sensitive);
    interpreter.charge(1 + keys.size() + key.shape().weight);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& old) { return equal(old, key); })) continue;
    keys.push_back(key);
    out.push_back(item);
  }
  return generator(std::move(out));
}

Value filter_sum(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("sum", arguments, {"attribute", "start"});
  Value total = args[1] ? *args[1] : Value::integer(0);
  for (const Value& item : items_of(interpreter, value)->items) {
    const Value part = args[0] && !args[0]->is_none() ? path_of(interpreter, item, *args[0]) : item;
    total = binary_operation(interpreter, "+", total, part);
  }
  return total;
}

template <bool largest>
Value filter_extreme(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const bool sensitive = args[0] && args[0]->truthy();
  std::optional<std::pair<Value, Value>> best;
  for (const Value& item : items_of(interpreter, value)->items) {
    const Value part = args[1] && !args[1]->is_none() ? path_of(interpreter, item, *args[1]) : item;
    const Value key = sort_key(interpreter, part, sensitive);
    if (!best || (largest ? compare(key, best->first) > 0 : compare(key, best->first) < 0))
      best = {key, item};
  }
  return best ? best->second : Value::undefined("No aggregated item, sequence was empty.");
}

struct Entry {
  std::string_view name;
  Filter filter;
};
constexpr Entry kFilters[] = {
    {"length", filter_length},
    {"count", filter_length},
    {"first", filter_first},
    {"last", filter_last},
    {"join", filter_join},
    {"list", filter_list},
    {"items", filter_items},
    {"map", filter_map},
    {"select", filter_select<true, false>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<false, true>},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"reverse", filter_reverse},
    {"unique", filter_unique},
    {"sum", filter_sum},
    {"min", filter_extreme<false>},
    {"max", filter_extreme<true>},
};

}  // namespace

Filter find_list_filter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter;
  }
  return nullptr;
}

}  // namespace moestro::jinja
