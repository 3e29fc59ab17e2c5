// Methods of lists and mappings; those of strings are in methods_text.cc.
#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"

namespace moestro::jinja {
namespace {

Value method_keys(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  bind("keys", arguments, {});
  interpreter.charge(self.as_dict().items.size());
  return Value::list(iterate(self).copy(), List::Kind::kKeys);
}

Value method_values(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  bind("values", arguments, {});
  interpreter.charge(self.as_dict().items.size());
  std::vector<Value> values;
  for (const auto& [key, value] : self.as_dict().items) values.push_back(value);
  return Value::list(std::move(values), List::Kind::kValues);
}

Value method_items(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  bind("items", arguments, {});
  interpreter.charge(self.as_dict().items.size());
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.as_dict().items) pairs.push_back(Value::list({key, value}, List::Kind::kTuple));
  return Value::list(std::move(pairs), List::Kind::kPairs);
}

Value method_get(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto args = bind("get", arguments, {"key", "default"}, 1);
  interpreter.charge(self.as_dict().items.size() / 16);
  check_hashable(*args[0]);
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

constexpr Method kDictMethods[] = {{"keys", method_keys},
                                   {"values", method_values},
                                   {"items", method_items},
                                   {"get", method_get},
                                   {"copy", method_copy}};
constexpr Method kListMethods[] = {{"index", method_list_index}, {"count", method_list_count}, {"copy", method_copy}};
constexpr Method kSequenceMethods[] = {{"index", method_list_index}, {"count", method_list_count}};
// The sandbox is immutable: Jinja takes these for undefined, whatever a mapping holds under their names.
constexpr std::string_view kListMutators[] = {"append", "extend", "insert",  "pop",
                                              "remove", "clear",  "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"update", "pop", "popitem", "setdefault", "clear"};

std::optional<Value> found(std::span<const Method> methods, std::span<const std::string_view> mutators,
                           const Value& self, std::string_view name) {
  if (std::find(mutators.begin(), mutators.end(), name) != mutators.end()) {
    return Value::undefined("access to attribute '" + std::string(name) + "' of '" + self.type_name() +
                            "' object is unsafe.");
  }
  return bound_method(methods, self, name);
}

}  // namespace

std::optional<Value> bound_method(std::span<const Method> methods, const Value& self, std::string_view name) {
  for (const Method& entry : methods) {
    if (entry.name != name) continue;
    return Value::callable(std::string(name),
                           [self, call = entry.function](Interpreter& interpreter, Arguments& arguments) {
                             if (self.is_string()) interpreter.charge_text(self.as_string().size());
                             return call(interpreter, self, arguments);
                           });
  }
  return std::nullopt;
}

std::optional<Value> find_method(const Value& self, std::string_view name) {
  if (self.is_string()) return find_text_method(self, name);
  if (self.is_dict()) return found(kDictMethods, kDictMutators, self, name);
  if (self.is_list(List::Kind::kList)) return found(kListMethods, kListMutators, self, name);
  if (self.is_list() && !self.as_list().is_view()) return bound_method(kSequenceMethods, self, name);
  return std::nullopt;
}

}  // namespace moestro::jinja
