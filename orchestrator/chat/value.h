#pragma once
// The values of templates: Python's values, as far as chat templates use them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro::jinja {

class Value;
class Interpreter;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// The amount of content in a value. Kept with every container, because a container that holds another twice can appear
/// exponentially large without using memory.
struct Shape {
  int depth = 1;
  uint64_t weight = 1;         ///< nodes, and 16 bytes of text count as one
  bool holds_mutable = false;  ///< a namespace, or something that may refer to one
  void add(const Value& part);
};

/// A sequence: list, tuple, range, or a view of a mapping (which has a length, but no positions). Never changed once
/// made.
struct List {
  enum class Kind { kList, kTuple, kRange, kKeys, kValues, kPairs };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  Shape shape;
  bool is_view() const { return kind == Kind::kKeys || kind == Kind::kValues || kind == Kind::kPairs; }
};

struct TemplateError;

/// The result of a filter such as select: true even when empty, without a length, and each item can be read once. Items
/// are computed when it is made. An error is reported after the items before it, where Jinja's generator would fail.
struct Generator {
  std::vector<Value> items;
  std::shared_ptr<const TemplateError> failure;
  Shape shape;
  size_t next = 0;
  bool left = false;  ///< a loop over it was left with `break`, so it is unknown how many items Jinja has taken
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  Shape shape;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

/// namespace(): the only value that a template can change. It cannot hold another namespace, so nothing can refer to
/// itself.
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

/// A function, macro, or method bound to its object.
struct Callable {
  std::string name;
  std::function<Value(Interpreter&, Arguments&)> call;
};

struct LoopState;

class Value {
 public:
  enum class Type {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kList,
    kGenerator,
    kDict,
    kNamespace,
    kCallable,
    kLoop
  };

  Value() = default;                        ///< undefined
  static Value undefined(std::string why);  ///< why: "'x' is undefined"
  static Value none();
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value real(double d);
  static Value string(std::string s);
  /// A string from `safe` or `escape` (Markup in Python). A plain string that is joined to it is escaped.
  static Value markup(std::string s);
  /// A markup if `model` is one, else a plain string.
  static Value string_like(const Value& model, std::string s);
  static Value list(std::vector<Value> items, List::Kind kind = List::Kind::kList);
  static Value generator(std::vector<Value> items, std::shared_ptr<const TemplateError> failure = nullptr);
  static Value dict(std::vector<std::pair<Value, Value>> items);
  static Value callable(std::string name, std::function<Value(Interpreter&, Arguments&)> call);
  static Value name_space(std::shared_ptr<Namespace> ns);
  static Value loop(std::shared_ptr<LoopState> state);

  Type type() const { return type_; }
  bool is_undefined() const { return type_ == Type::kUndefined; }
  bool is_none() const { return type_ == Type::kNone; }
  bool is_bool() const { return type_ == Type::kBool; }
  bool is_int() const { return type_ == Type::kInt; }
  bool is_float() const { return type_ == Type::kFloat; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_markup() const { return markup_; }
  bool is_list() const { return type_ == Type::kList; }
  bool is_list(List::Kind kind) const { return is_list() && as_list().kind == kind; }
  bool is_generator() const { return type_ == Type::kGenerator; }
  bool is_dict() const { return type_ == Type::kDict; }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_whole() const { return is_bool() || is_int(); }

  int64_t as_int() const { return int_; }  ///< of a bool too
  double as_real() const { return is_float() ? real_ : static_cast<double>(int_); }
  // These references are valid while a copy of the value exists, so they cannot be taken from a temporary.
  const std::string& as_string() const& { return *static_cast<const std::string*>(body_.get()); }
  const List& as_list() const& { return *static_cast<const List*>(body_.get()); }
  const Dict& as_dict() const& { return *static_cast<const Dict*>(body_.get()); }
  const Callable& as_callable() const& { return *static_cast<const Callable*>(body_.get()); }
  Generator& as_generator() const& { return *static_cast<Generator*>(changeable_body()); }
  Namespace& as_namespace() const& { return *static_cast<Namespace*>(changeable_body()); }
  LoopState& as_loop() const& { return *static_cast<LoopState*>(changeable_body()); }
  const std::string& as_string() const&& = delete;
  const List& as_list() const&& = delete;
  const Dict& as_dict() const&& = delete;
  const Callable& as_callable() const&& = delete;
  Generator& as_generator() const&& = delete;
  Namespace& as_namespace() const&& = delete;
  LoopState& as_loop() const&& = delete;

  bool truthy() const;
  Shape shape() const;
  std::string type_name() const;      ///< Python's: "str", "dict", ...
  std::string why_undefined() const;  ///< "'x' is undefined"

 private:
  friend class Items;
  void* changeable_body() const { return const_cast<void*>(body_.get()); }

  Type type_ = Type::kUndefined;
  bool markup_ = false;
  int64_t int_ = 0;
  double real_ = 0;
  std::shared_ptr<const void> body_;
};

/// The items of an iteration, with their owner. Iterating over a temporary is safe (`for (x : iterate(v))`: the loop
/// holds it); iterating over a part of a temporary does not compile.
class Items {
 public:
  Items() = default;
  explicit Items(std::vector<Value> items) : items_(std::make_shared<const std::vector<Value>>(std::move(items))) {}
  /// The items of `list`, without a copy.
  static Items of_list(const Value& list);

  size_t size() const { return items_ ? items_->size() : 0; }
  bool empty() const { return size() == 0; }
  std::vector<Value> copy() const { return items_ ? *items_ : std::vector<Value>(); }
  const Value* begin() const& { return items_ ? items_->data() : nullptr; }
  const Value* end() const& { return begin() + size(); }
  const Value& operator[](size_t i) const& { return (*items_)[i]; }
  const Value* begin() const&& = delete;
  const Value* end() const&& = delete;
  const Value& operator[](size_t i) const&& = delete;

 private:
  std::shared_ptr<const std::vector<Value>> items_;
};

/// `loop`: plain attributes, and its calls.
struct LoopState {
  Items items;
  Shape shape;
  size_t index = 0;
  int nesting = 1;
};

bool equal(const Value& a, const Value& b);
/// Replaces the value of `key`, or adds both at the end.
void set_item(std::vector<std::pair<Value, Value>>& items, Value key, Value value);
/// -1, 0, 1; fails for values that Python would not order.
int compare(const Value& a, const Value& b);
/// Fails for values that cannot be keys in Python.
void check_hashable(const Value& value);
bool contains(const Value& container, const Value& item);
/// str(): what {{ }} prints.
std::string to_text(const Value& value);
/// repr(): as within a printed list.
void append_repr(std::string& out, const Value& value);
std::string real_text(double value);
/// The items of an iteration: items of lists, keys of dicts, characters of strings, or what is left of a generator,
/// which is empty afterwards. Fails for values that cannot be iterated.
Items iterate(const Value& value);
/// The next item of a generator; nullopt at its end.
std::optional<Value> next_of(Generator& generator);
int64_t length_of(const Value& value);

}  // namespace moestro::jinja
