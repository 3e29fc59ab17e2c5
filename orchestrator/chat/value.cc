#include "orchestrator/chat/value.h"

#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {
constexpr int kValueDepthMax = 100;
constexpr uint64_t kWeightMax = 16'000'000;

Shape shape_of(const std::vector<Value>& items) {
  Shape shape;
  for (const Value& item : items) shape.add(item);
  return shape;
}

}  // namespace

void Shape::add(const Value& part) {
  const Shape other = part.shape();
  depth = std::max(depth, other.depth + 1);
  weight += other.weight;
  holds_mutable = holds_mutable || other.holds_mutable;
  if (depth > kValueDepthMax) fail_exhausted("a value nests more than 100 levels deep");
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
Value Value::markup(std::string s) {
  Value v = string(std::move(s));
  v.markup_ = true;
  return v;
}
Value Value::string_like(const Value& model, std::string s) {
  return model.is_markup() ? markup(std::move(s)) : string(std::move(s));
}
Value Value::list(std::vector<Value> items, List::Kind kind) {
  const Shape shape = shape_of(items);
  Value v;
  v.type_ = Type::kList;
  v.body_ = std::make_shared<List>(List{kind, std::move(items), shape});
  return v;
}
Value Value::generator(std::vector<Value> items, std::shared_ptr<const TemplateError> failure) {
  const Shape shape = shape_of(items);
  Value v;
  v.type_ = Type::kGenerator;
  v.body_ = std::make_shared<Generator>(Generator{std::move(items), std::move(failure), shape});
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
      return !as_list().items.empty();
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
    case Type::kGenerator:
      return as_generator().shape;
    case Type::kLoop:
      return {as_loop().shape.depth + 1, as_loop().shape.weight, true};
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
      return is_markup() ? "Markup" : "str";
    case Type::kList: {
      static constexpr const char* kKinds[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
      return kKinds[static_cast<size_t>(as_list().kind)];
    }
    case Type::kGenerator:
      return "generator";
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

Items Items::of_list(const Value& list) {
  Items items;
  items.items_ = {list.body_, &list.as_list().items};  // shares the list's ownership
  return items;
}

std::optional<Value> next_of(Generator& generator) {
  if (generator.left) fail_unsupported("a generator that a loop was left from with 'break' is not supported");
  if (generator.next < generator.items.size()) return generator.items[generator.next++];
  if (!generator.failure) return std::nullopt;
  const auto failure = std::exchange(generator.failure, nullptr);
  throw TemplateError(*failure);
}

Items iterate(const Value& value) {
  std::vector<Value> items;
  switch (value.type()) {
    case Value::Type::kUndefined:
      return {};
    case Value::Type::kList:
      return Items::of_list(value);
    case Value::Type::kGenerator:
      while (auto item = next_of(value.as_generator())) items.push_back(*std::move(item));
      return Items(std::move(items));
    case Value::Type::kDict:
      for (const auto& [key, unused] : value.as_dict().items) items.push_back(key);
      return Items(std::move(items));
    case Value::Type::kString: {
      const std::string& text = value.as_string();
      const auto offsets = character_offsets(text);
      for (size_t i = 0; i + 1 < offsets.size(); ++i)
        items.push_back(Value::string(text.substr(offsets[i], offsets[i + 1] - offsets[i])));
      return Items(std::move(items));
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
      return static_cast<int64_t>(value.as_loop().items.size());
    case Value::Type::kList:
      return static_cast<int64_t>(value.as_list().items.size());
    default:
      fail("object of type '" + value.type_name() + "' has no len()");
  }
}

}  // namespace moestro::jinja
