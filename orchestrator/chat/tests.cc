// What may follow `is`.
#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

using Type = Value::Type;

template <bool (*holds)(const Value&)>
bool plain(Interpreter&, const Value& value, Arguments& arguments) {
  bind("test", arguments, {});
  return holds(value);
}

bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_string(const Value& v) {
  return v.is_string();
}
bool is_mapping(const Value& v) {
  return v.is_dict();
}
bool is_iterable(const Value& v) {
  return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined() || v.type() == Type::kLoop;
}
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_dict() || v.is_undefined() ||
         (v.is_list() && v.as_list().kind != List::Kind::kGenerator);
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_integer(const Value& v) {
  return v.is_int();
}
bool is_float(const Value& v) {
  return v.is_float();
}
bool is_boolean(const Value& v) {
  return v.is_bool();
}
bool is_true(const Value& v) {
  return v.is_bool() && v.truthy();
}
bool is_false(const Value& v) {
  return v.is_bool() && !v.truthy();
}
bool is_callable(const Value& v) {
  return v.type() == Type::kCallable;
}
bool is_lower(const Value& v) {
  return all_of_class(to_text(v), CharClass::kLower);
}
bool is_upper(const Value& v) {
  return all_of_class(to_text(v), CharClass::kUpper);
}
bool is_odd(const Value& v) {
  return int_argument("odd", v) % 2 != 0;
}
bool is_even(const Value& v) {
  return int_argument("even", v) % 2 == 0;
}

bool is_divisible(Interpreter&, const Value& value, Arguments& arguments) {
  const auto args = bind("divisibleby", arguments, {"num"}, 1);
  const int64_t by = int_argument("divisibleby", *args[0]);
  if (by == 0) fail("integer division or modulo by zero");
  return by == -1 || int_argument("divisibleby", value) % by == 0;
}

enum class Op { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn };

template <Op op>
bool compares(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">=", "in"};
  const auto args = bind("test", arguments, {"other"}, 1);
  return comparison(interpreter, kNames[static_cast<size_t>(op)], value, *args[0]);
}

bool is_known_filter(Interpreter&, const Value& value, Arguments&) {
  return find_filter(text_argument("filter", value)) != nullptr;
}
bool is_known_test(Interpreter&, const Value& value, Arguments&) {
  return find_test(text_argument("test", value)) != nullptr;
}

struct Entry {
  std::string_view name;
  Test test;
};
constexpr Entry kTests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"iterable", plain<is_iterable>},
    {"sequence", plain<is_sequence>},
    {"number", plain<is_number>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"callable", plain<is_callable>},
    {"lower", plain<is_lower>},
    {"upper", plain<is_upper>},
    {"odd", plain<is_odd>},
    {"even", plain<is_even>},
    {"divisibleby", is_divisible},
    {"filter", is_known_filter},
    {"test", is_known_test},
    {"equalto", compares<Op::kEqual>},
    {"eq", compares<Op::kEqual>},
    {"==", compares<Op::kEqual>},
    {"ne", compares<Op::kNotEqual>},
    {"!=", compares<Op::kNotEqual>},
    {"lt", compares<Op::kLess>},
    {"lessthan", compares<Op::kLess>},
    {"<", compares<Op::kLess>},
    {"le", compares<Op::kLessEqual>},
    {"<=", compares<Op::kLessEqual>},
    {"gt", compares<Op::kGreater>},
    {"greaterthan", compares<Op::kGreater>},
    {">", compares<Op::kGreater>},
    {"ge", compares<Op::kGreaterEqual>},
    {">=", compares<Op::kGreaterEqual>},
    {"in", compares<Op::kIn>},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.test;
  }
  return nullptr;
}

}  // namespace moestro::jinja
