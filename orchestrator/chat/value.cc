#include "orchestrator/chat/value.h"

#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {
constexpr int kDepthMax = 100;
constexpr uint64_t kWeightMax = 16'000'000;
}  // namespace

void Shape::add(const Value& part) {
  const Shape other = part.shape();
  depth = std::max(depth, other.depth + 1);
  weight += other.weight;
  holds_mutable = holds_mutable || other.holds_mutable;
  if (depth > kDepthMax) fail_exhausted("a value nests more than 100 levels deep");
  if (weight > kWeightMax) fail_exhausted("a value is too large");
}

Value Value::undefined(std::string why) {
  Value v;
  v.body_ = std::make_shared<std::string>(std::move(why));
  return v;
}
Value Value::none() {
  Value v;
  v.type_ = Type::kNone;
  return v;
}
Value Value::boolean(bool b) {
  Value v;
  v.type_ = Type::kBool;
  v.int_ = b ? 1 : 0;
  return v;
}
Value Value::integer(int64_t i) {
  Value v;
  v.type_ = Type::kInt;
  v.int_ = i;
  return v;
}
Value Value::real(double d) {
  Value v;
  v.type_ = Type::kFloat;
  v.real_ = d;
  return v;
}
Value Value::string(std::string s) {
  Value v;
  v.type_ = Type::kString;
  v.body_ = std::make_shared<std::string>(std::move(s));
  return v;
}
Value Value::list(std::vector<Value> items, List::Kind kind) {
  Shape shape;
  for (const Value& item : items) shape.add(item);
  Value v;
  v.type_ = Type::kList;
  v.body_ = std::make_shared<List>(List{kind, std::move(items), shape});
  return v;
}
Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  Shape shape;
  for (const auto& [key, value] : items) {
    shape.add(key);
    shape.add(value);
  }
  Value v;
  v.type_ = Type::kDict;
  v.body_ = std::make_shared<Dict>(Dict{std::move(items), shape});
  return v;
}
Value Value::callable(std::string name, std::function<Value(Interpreter&, Arguments&)> call) {
  Value v;
  v.type_ = Type::kCallable;
  v.body_ = std::make_shared<Callable>(Callable{std::move(name), std::move(call)});
  return v;
}
Value Value::name_space(std::shared_ptr<Namespace> ns) {
  Value v;
  v.type_ = Type::kNamespace;
  v.body_ = std::move(ns);
  return v;
}
Value Value::loop(std::shared_ptr<LoopState> state) {
  Value v;
  v.type_ = Type::kLoop;
  v.body_ = std::move(state);
  return v;
}

bool Value::truthy() const {
  switch (type_) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return int_ != 0;
    case Type::kFloat:
      return real_ != 0;
    case Type::kString:
      return !as_string().empty();
    case Type::kList:
      return as_list().kind == List::Kind::kGenerator || !as_list().items.empty();
    case Type::kDict:
      return !as_dict().items.empty();
    default:
      return true;
  }
}

Shape Value::shape() const {
  switch (type_) {
    case Type::kString:
      return {0, 1 + as_string().size() / 16, false};
    case Type::kList:
      return as_list().shape;
    case Type::kDict:
      return as_dict().shape;
    case Type::kLoop:
      return {as_loop().items->shape.depth + 1, as_loop().items->shape.weight, true};
    case Type::kNamespace:
    case Type::kCallable:
      return {0, 1, true};  // a bound method or a macro may refer to a namespace
    default:
      return {0, 1, false};
  }
}

std::string Value::type_name() const {
  switch (type_) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return "str";
    case Type::kList:
      return as_list().kind == List::Kind::kList    ? "list"
             : as_list().kind == List::Kind::kTuple ? "tuple"
                                                    : "generator";
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "Namespace";
    case Type::kCallable:
      return "function";
    case Type::kLoop:
      return "LoopContext";
  }
  return "?";
}

std::string Value::why_undefined() const {
  return body_ ? *static_cast<const std::string*>(body_.get()) : "a value is undefined";
}

const Value* Dict::find(const Value& key) const {
  for (const auto& [name, value] : items) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name.is_string() && name.as_string() == key) return &value;
  }
  return nullptr;
}

std::shared_ptr<const List> iterate(const Value& value) {
  auto list = std::make_shared<List>();
  switch (value.type()) {
    case Value::Type::kUndefined:
      return list;
    case Value::Type::kList:
      return value.shared_list();
    case Value::Type::kDict:
      for (const auto& [key, unused] : value.as_dict().items) list->items.push_back(key);
      return list;
    case Value::Type::kString: {
      const auto offsets = character_offsets(value.as_string());
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        list->items.push_back(
            Value::string(value.as_string().substr(offsets[i], offsets[i + 1] - offsets[i])));
      }
      return list;
    }
    default:
      fail("'" + value.type_name() + "' object is not iterable");
  }
}

int64_t length_of(const Value& value) {
  switch (value.type()) {
    case Value::Type::kUndefined:
      return 0;
    case Value::Type::kString:
      return static_cast<int64_t>(character_count(value.as_string()));
    case Value::Type::kDict:
      return static_cast<int64_t>(value.as_dict().items.size());
    case Value::Type::kLoop:
      return static_cast<int64_t>(value.as_loop().items->items.size());
    case Value::Type::kList:
      if (value.as_list().kind != List::Kind::kGenerator)
        return static_cast<int64_t>(value.as_list().items.size());
      [[fallthrough]];
    default:
      fail("object of type '" + value.type_name() + "' has no len()");
  }
}

}  // namespace moestro::jinja
