#include <cmath>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/value.h"

namespace moestro::jinja {
namespace {

bool equal_lists(const List& a, const List& b) {
  if (a.is_view() && b.is_view()) fail_unsupported("comparing views of mappings is not supported");
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.as_int() == b.as_int();
  if (a.is_number() && b.is_number()) return a.as_real() == b.as_real();
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Value::Type::kUndefined:
    case Value::Type::kNone:
      return true;
    case Value::Type::kString:
      return a.as_string() == b.as_string();
    case Value::Type::kList:
      return equal_lists(a.as_list(), b.as_list());
    case Value::Type::kGenerator:
      return &a.as_generator() == &b.as_generator();
    case Value::Type::kDict:
      return equal_dicts(a.as_dict(), b.as_dict());
    case Value::Type::kNamespace:
      return &a.as_namespace() == &b.as_namespace();
    case Value::Type::kCallable:
      return &a.as_callable() == &b.as_callable();
    case Value::Type::kLoop:
      return &a.as_loop() == &b.as_loop();
    default:
      return false;
  }
}

int compare(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  if (a.is_number() && b.is_number()) return a.as_real() < b.as_real() ? -1 : a.as_real() > b.as_real();
  // UTF-8 sorts as its code points do.
  if (a.is_string() && b.is_string()) {
    const int order = a.as_string().compare(b.as_string());
    return order < 0 ? -1 : order > 0;
  }
  if ((a.is_list(List::Kind::kList) && b.is_list(List::Kind::kList)) ||
      (a.is_list(List::Kind::kTuple) && b.is_list(List::Kind::kTuple))) {
    const auto &x = a.as_list().items, &y = b.as_list().items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(x[i], y[i])) return compare(x[i], y[i]);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  if (a.is_undefined()) fail(a.why_undefined());
  if (b.is_undefined()) fail(b.why_undefined());
  fail("values of type '" + a.type_name() + "' and '" + b.type_name() + "' cannot be ordered");
}

void set_item(std::vector<std::pair<Value, Value>>& items, Value key, Value value) {
  for (auto& [old_key, old] : items) {
    if (!equal(old_key, key)) continue;
    old = std::move(value);
    return;
  }
  items.emplace_back(std::move(key), std::move(value));
}

void check_hashable(const Value& value) {
  if (value.is_list(List::Kind::kTuple)) {
    for (const Value& part : value.as_list().items) check_hashable(part);
  } else if (value.is_dict() || value.is_list(List::Kind::kList)) {
    fail("unhashable type: '" + value.type_name() + "'");
  }
}

bool contains(const Value& container, const Value& item) {
  switch (container.type()) {
    case Value::Type::kString:
      if (!item.is_string()) fail("'in <string>' requires string as left operand, not " + item.type_name());
      return container.as_string().find(item.as_string()) != std::string::npos;
    case Value::Type::kDict:
      check_hashable(item);
      return container.as_dict().find(item) != nullptr;
    case Value::Type::kUndefined:
      return false;
    case Value::Type::kList:
      for (const Value& each : container.as_list().items) {
        if (equal(each, item)) return true;
      }
      return false;
    case Value::Type::kGenerator:
      while (const auto each = next_of(container.as_generator())) {
        if (equal(*each, item)) return true;
      }
      return false;
    default:
      fail("argument of type '" + container.type_name() + "' is not iterable");
  }
}

}  // namespace moestro::jinja
