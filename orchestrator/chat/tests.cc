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
  return v.is_string() || v.is_list() || v.is_generator() || v.is_dict() || v.is_undefined() || v.type() == Type::kLoop;
}
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_dict() || v.is_undefined() || (v.is_list() && !v.as_list().is_view());
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
  return v.type() == Type::kCallable || v.type() == Type::kLoop || v.is_undefined();  // which fails when called
}
bool is_lower(const Value& v) {
  return all_of_class(to_text(v), CharClass::kLower);
}
bool is_upper(const Value& v) {
  return all_of_class(to_text(v), CharClass::kUpper);
}
bool is_escaped(const Value& v) {
  return v.is_markup();
}

Value remainder(Interpreter& interpreter, const Value& value, const Value& by) {
  if (value.is_string()) fail_unsupported("testing whether a string is divisible is not supported");
  return binary_operation(interpreter, "%", value, by);
}
template <bool odd>
bool has_parity(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  bind(odd ? "odd" : "even", arguments, {});
  return equal(remainder(interpreter, value, Value::integer(2)), Value::integer(odd ? 1 : 0));
}

bool is_divisible(Interpreter& interpreter, const Value& value, Arguments& arguments) {
  const auto args = bind("divisibleby", arguments, {"num"}, 1);
  return equal(remainder(interpreter, value, *args[0]), Value::integer(0));
}

// Python's `is`: small values are the same where they are equal; whether two made texts or numbers are one object is
// Python's own affair.
bool is_same(Interpreter&, const Value& value, Arguments& arguments) {
  const auto args = bind("sameas", arguments, {"other"}, 1);
  if (value.type() != args[0]->type()) return false;
  if (value.is_none() || value.is_bool()) return equal(value, *args[0]);
  fail_unsupported("the test 'sameas' of a " + value.type_name() + " is not supported");
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

constexpr Named<Test> kTests[] = {
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
    {"odd", has_parity<true>},
    {"even", has_parity<false>},
    {"sameas", is_same},
    {"escaped", plain<is_escaped>},
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
  return find_named(kTests, name);
}

}  // namespace moestro::jinja
