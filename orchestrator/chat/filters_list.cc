// Filters on sequences and mappings.
#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

Items items_of(Interpreter& interpreter, const Value& value) {
  if (value.is_string()) interpreter.charge(value.as_string().size());
  Items items = iterate(value);
  interpreter.charge(items.size());
  return items;
}

// The items that `make` gives one after another. What fails is kept for the place of the item it would have given.
template <typename Make>
Value generator(Make make) {
  std::vector<Value> items;
  try {
    make(items);
  } catch (const TemplateError& error) {
    if (error.code == Code::kExhausted) throw;
    return Value::generator(std::move(items), std::make_shared<const TemplateError>(error));
  }
  return Value::generator(std::move(items));
}

// "a.b.0": attributes and positions, one after another; `fallback` stands for one that is undefined.
Value path_of(Interpreter& interpreter, Value value, const std::optional<Value>& path,
              const std::optional<Value>& fallback = std::nullopt) {
  if (!path || path->is_none()) return value;
  const auto step = [&](const Value& key) {
    value = interpreter.item(value, key);
    if (value.is_undefined() && fallback && !fallback->is_none()) value = *fallback;
  };
  if (path->is_whole()) return step(*path), value;
  const std::string& text = text_argument("attribute", *path);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    step(number ? Value::integer(std::stoll(part)) : Value::string(part));
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
  constexpr const char* kNone = "No first item, sequence was empty.";
  if (value.is_generator()) return next_of(value.as_generator()).value_or(Value::undefined(kNone));
  const Items items = items_of(interpreter, value);
  return items.empty() ? Value::undefined(kNone) : items[0];
}

Value filter_last(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("last", arguments, {});
  if (value.is_generator()) fail("'generator' object is not reversible");
  const Items items = items_of(interpreter, value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items[items.size() - 1];
}

Value filter_join(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("join", arguments, {"d", "attribute"});
  const std::string separator = args[0] ? to_text(*args[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : items_of(interpreter, value)) {
    if (!first) out += separator;
    first = false;
    const Value part = path_of(interpreter, item, args[1]);
    interpreter.charge(part.shape().weight + separator.size() / 16);
    out += to_text(part);
  }
  return Value::string(std::move(out));
}

Value filter_list(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("list", arguments, {});
  return Value::list(items_of(interpreter, value).copy());
}

Value filter_items(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("items", arguments, {});
  return generator([&](std::vector<Value>& out) {
    if (value.is_undefined()) return;
    if (!value.is_dict()) fail("Can only get item pairs from a mapping.");
    for (const auto& [key, item] : value.as_dict().items) out.push_back(Value::list({key, item}, List::Kind::kTuple));
    interpreter.charge(out.size());
  });
}

// An attribute of each item, or what a filter makes of it.
Value filter_map(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  return generator([&](std::vector<Value>& out) {
    if (!value.truthy()) return;  // none too: Jinja does not look at what is false
    if (arguments.positional.empty()) {
      const auto args = bind("map", arguments, {"attribute", "default"}, 1);
      for (const Value& item : items_of(interpreter, value))
        out.push_back(path_of(interpreter, item, args[0], args[1]));
      return;
    }
    const std::string name = text_argument("map", arguments.positional[0]);
    for (const Value& item : items_of(interpreter, value)) {
      Arguments each = arguments;
      each.positional.erase(each.positional.begin());
      out.push_back(interpreter.apply_filter(name, item, each));
    }
  });
}

// select, reject (by a test of the item) and selectattr, rejectattr (of an attribute of it).
template <bool wanted, bool by_attribute>
Value filter_select(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  return generator([&](std::vector<Value>& out) {
    if (!value.truthy()) return;
    Arguments rest = arguments;
    const auto take = [&rest]() -> std::optional<Value> {
      if (rest.positional.empty()) return std::nullopt;
      const Value first = rest.positional.front();
      rest.positional.erase(rest.positional.begin());
      return first;
    };
    const auto path = by_attribute ? take() : std::nullopt;
    if (by_attribute && !path) fail("Missing parameter for attribute name");
    const auto test = take();
    for (const Value& item : items_of(interpreter, value)) {
      const Value subject = path_of(interpreter, item, path);
      Arguments each = rest;
      const bool holds =
          test ? interpreter.apply_test(text_argument("select", *test), subject, each) : subject.truthy();
      if (holds == wanted) out.push_back(item);
    }
  });
}

// Strings are compared without regard to case unless it is asked for.
Value sort_key(Interpreter& interpreter, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  interpreter.charge_text(value.as_string().size());
  return Value::string(lower(value.as_string()));
}

std::vector<Value> sorted(Interpreter& interpreter, std::vector<std::pair<Value, Value>> keyed, bool reverse) {
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

// By the item, an attribute of it, or several, as in "a,b.c".
Value filter_sort(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool sensitive = args[1] && args[1]->truthy();
  std::vector<std::optional<Value>> paths{args[2]};
  if (args[2] && args[2]->is_string()) {
    paths.clear();
    const std::string& text = args[2]->as_string();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      paths.emplace_back(Value::string(text.substr(begin, end - begin)));
      begin = end + 1;
    }
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items_of(interpreter, value)) {
    std::vector<Value> keys;
    for (const auto& path : paths) keys.push_back(sort_key(interpreter, path_of(interpreter, item, path), sensitive));
    keyed.emplace_back(Value::list(std::move(keys)), item);
  }
  return Value::list(sorted(interpreter, std::move(keyed), args[0] && int_argument("sort", *args[0]) != 0));
}

Value filter_dictsort(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!value.is_dict()) fail("'dictsort' needs a mapping, not " + value.type_name());
  const std::string by = args[1] ? text_argument("dictsort", *args[1]) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  const bool sensitive = args[0] && args[0]->truthy();
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : value.as_dict().items) {
    keyed.emplace_back(sort_key(interpreter, by == "value" ? item : key, sensitive),
                       Value::list({key, item}, List::Kind::kTuple));
  }
  return Value::list(sorted(interpreter, std::move(keyed), args[2] && int_argument("dictsort", *args[2]) != 0));
}

Value filter_reverse(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind("reverse", arguments, {});
  const Items items = items_of(interpreter, value);
  std::vector<Value> reversed = items.copy();
  std::reverse(reversed.begin(), reversed.end());
  if (value.is_generator()) return Value::list(std::move(reversed));
  if (!value.is_string()) return Value::generator(std::move(reversed));
  std::string text;
  for (const Value& item : reversed) text += item.as_string();
  return Value::string_like(value, std::move(text));
}

Value filter_unique(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("unique", arguments, {"case_sensitive", "attribute"});
  const bool sensitive = args[0] && args[0]->truthy();
  return generator([&](std::vector<Value>& out) {
    std::vector<Value> keys;
    for (const Value& item : items_of(interpreter, value)) {
      const Value key = sort_key(interpreter, path_of(interpreter, item, args[1]), sensitive);
      check_hashable(key);
      interpreter.charge(1 + keys.size() + key.shape().weight);
      if (std::any_of(keys.begin(), keys.end(), [&](const Value& old) { return equal(old, key); })) continue;
      keys.push_back(key);
      out.push_back(item);
    }
  });
}

Value filter_sum(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("sum", arguments, {"attribute", "start"});
  Value total = args[1] ? *args[1] : Value::integer(0);
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items_of(interpreter, value))
    total = binary_operation(interpreter, "+", total, path_of(interpreter, item, args[0]));
  return total;
}

template <bool largest>
Value filter_extreme(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const bool sensitive = args[0] && args[0]->truthy();
  std::optional<std::pair<Value, Value>> best;
  for (const Value& item : items_of(interpreter, value)) {
    const Value key = sort_key(interpreter, path_of(interpreter, item, args[1]), sensitive);
    if (!best || (largest ? compare(key, best->first) > 0 : compare(key, best->first) < 0)) best = {key, item};
  }
  return best ? best->second : Value::undefined("No aggregated item, sequence was empty.");
}

constexpr Named<Filter> kListFilters[] = {
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
  return find_named(kListFilters, name);
}

}  // namespace moestro::jinja
