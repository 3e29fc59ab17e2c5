#pragma once
// What a template computes with: Python's values as far as chat templates use them.

#include <cstdint>
#include <functional>
#include <memory>
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

/// How much there is to walk in a value. Kept with every container, because one that holds another twice can
/// look exponentially large while taking no memory.
struct Shape {
  int depth = 1;
  uint64_t weight = 1;         ///< nodes, and 16 bytes of text count as one
  bool holds_mutable = false;  ///< a namespace, or something that may refer to one
  void add(const Value& part);
};

/// list, tuple, or what a filter yields (kGenerator: true even when empty, without a length). Never changed
/// once made.
struct List {
  enum class Kind { kList, kTuple, kGenerator };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  Shape shape;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  Shape shape;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

/// namespace(): the one thing a template may change. It may hold no other namespace, so that nothing can
/// refer to itself.
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

/// A function, macro, or method bound to its object.
struct Callable {
  std::string name;
  std::function<Value(Interpreter&, Arguments&)> call;
};

/// `loop`: plain attributes, and its calls.
struct LoopState {
  std::shared_ptr<const List> items;
  size_t index = 0;
  int nesting = 1;
};

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
  static Value list(std::vector<Value> items, List::Kind kind = List::Kind::kList);
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
  bool is_list() const { return type_ == Type::kList; }
  bool is_dict() const { return type_ == Type::kDict; }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_whole() const { return is_bool() || is_int(); }

  int64_t as_int() const { return int_; }  ///< of a bool too
  double as_real() const { return is_float() ? real_ : static_cast<double>(int_); }
  const std::string& as_string() const { return *static_cast<const std::string*>(body_.get()); }
  const List& as_list() const { return *static_cast<const List*>(body_.get()); }
  const Dict& as_dict() const { return *static_cast<const Dict*>(body_.get()); }
  const Callable& as_callable() const { return *static_cast<const Callable*>(body_.get()); }
  Namespace& as_namespace() const {
    return *const_cast<Namespace*>(static_cast<const Namespace*>(body_.get()));
  }
  LoopState& as_loop() const { return *const_cast<LoopState*>(static_cast<const LoopState*>(body_.get())); }
  std::shared_ptr<const List> shared_list() const { return std::static_pointer_cast<const List>(body_); }

  bool truthy() const;
  Shape shape() const;
  std::string type_name() const;      ///< Python's: "str", "dict", ...
  std::string why_undefined() const;  ///< "'x' is undefined"

 private:
  Type type_ = Type::kUndefined;
  int64_t int_ = 0;
  double real_ = 0;
  std::shared_ptr<const void> body_;
};

bool equal(const Value& a, const Value& b);
/// -1, 0, 1; fails for values that Python would not order.
int compare(const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);
/// str(): what {{ }} prints.
std::string to_text(const Value& value);
/// repr(): as within a printed list.
void append_repr(std::string& out, const Value& value);
std::string real_text(double value);
/// The items that iteration gives: of lists, keys of dicts, characters of strings. Fails for what cannot be
/// iterated.
std::shared_ptr<const List> iterate(const Value& value);
int64_t length_of(const Value& value);

}  // namespace moestro::jinja
