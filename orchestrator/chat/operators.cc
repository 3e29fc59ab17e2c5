#include <algorithm>
#include <cmath>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

constexpr size_t kTextBytesMax = size_t{64} << 20;

[[noreturn]] void wrong_types(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail(a.why_undefined());
  if (b.is_undefined()) fail(b.why_undefined());
  fail("unsupported operand type(s) for " + std::string(op) + ": '" + a.type_name() + "' and '" + b.type_name() + "'");
}

[[noreturn]] void too_large() {
  fail("a whole number is beyond 64 bits");
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return a == INT64_MIN ? (too_large(), 0) : -a;
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

Value whole_operation(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+")
    overflow = __builtin_add_overflow(a, b, &result);
  else if (op == "-")
    overflow = __builtin_sub_overflow(a, b, &result);
  else if (op == "*")
    overflow = __builtin_mul_overflow(a, b, &result);
  else if (op == "//")
    result = floor_divide(a, b);
  else if (op == "%")
    result = b == -1 ? 0 : a - floor_divide(a, b) * b;
  else
    result = power(a, b);
  if (overflow) too_large();
  return Value::integer(result);
}

Value number_operation(std::string_view op, const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole() && op != "/" && !(op == "**" && b.as_int() < 0)) {
    return whole_operation(op, a.as_int(), b.as_int());
  }
  const double x = a.as_real(), y = b.as_real();
  if (op == "+") return Value::real(x + y);
  if (op == "-") return Value::real(x - y);
  if (op == "*") return Value::real(x * y);
  if (op == "**") return Value::real(std::pow(x, y));
  if (y == 0) fail("division by zero");
  if (op == "/") return Value::real(x / y);
  if (op == "//") return Value::real(std::floor(x / y));
  double rest = std::fmod(x, y);
  if (rest == 0) return Value::real(std::copysign(0.0, y));
  if ((rest < 0) != (y < 0)) rest += y;
  return Value::real(rest);
}

// A plain string that is joined to a markup one is escaped.
Value joined(Interpreter& interpreter, const Value& a, const Value& b) {
  const bool markup = a.is_markup() || b.is_markup();
  const Value x = markup ? escaped(interpreter, a) : a, y = markup ? escaped(interpreter, b) : b;
  const std::string &left = x.as_string(), &right = y.as_string();
  interpreter.charge_text(left.size() + right.size());
  if (left.size() + right.size() > kTextBytesMax) fail_exhausted("a string becomes longer than 64 MiB");
  return Value::string_like(x, left + right);
}

bool can_repeat(const Value& value) {
  return value.is_string() || value.is_list(List::Kind::kList) || value.is_list(List::Kind::kTuple);
}

Value repeat(Interpreter& interpreter, const Value& of, int64_t times) {
  const auto n = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  if (of.is_string()) {
    const std::string& text = of.as_string();
    if (!text.empty() && n > kTextBytesMax / text.size()) fail_exhausted("a string becomes longer than 64 MiB");
    interpreter.charge_text(n * text.size());
    std::string out;
    out.reserve(n * text.size());
    if (!text.empty()) {
      for (uint64_t i = 0; i < n; ++i) out += text;
    }
    return Value::string_like(of, std::move(out));
  }
  const List& list = of.as_list();
  if (!list.items.empty() && n > 1'000'000 / list.items.size()) fail_exhausted("a list becomes longer than a million");
  interpreter.charge(n * list.items.size());
  std::vector<Value> items;
  for (uint64_t i = 0; i < (list.items.empty() ? 0 : n); ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return Value::list(std::move(items), list.kind);
}

}  // namespace

Value binary_operation(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return number_operation(op, a, b);
  if (op == "+" && a.is_string() && b.is_string()) return joined(interpreter, a, b);
  if (op == "+" && ((a.is_list(List::Kind::kList) && b.is_list(List::Kind::kList)) ||
                    (a.is_list(List::Kind::kTuple) && b.is_list(List::Kind::kTuple)))) {
    std::vector<Value> items = a.as_list().items;
    items.insert(items.end(), b.as_list().items.begin(), b.as_list().items.end());
    interpreter.charge(items.size());
    return Value::list(std::move(items), a.as_list().kind);
  }
  if (op == "*" && can_repeat(a) && b.is_whole()) return repeat(interpreter, a, b.as_int());
  if (op == "*" && can_repeat(b) && a.is_whole()) return repeat(interpreter, b, a.as_int());
  if (op == "%" && a.is_string()) return format_percent(interpreter, a, b);
  wrong_types(op, a, b);
}

Value unary_operation(std::string_view op, const Value& a) {
  if (op == "not") return Value::boolean(!a.truthy());
  if (a.is_undefined()) fail(a.why_undefined());
  if (!a.is_number()) fail("bad operand type for unary " + std::string(op) + ": '" + a.type_name() + "'");
  if (op == "+") return a.is_float() ? a : Value::integer(a.as_int());
  if (a.is_float()) return Value::real(-a.as_real());
  if (a.as_int() == INT64_MIN) too_large();
  return Value::integer(-a.as_int());
}

bool comparison(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b) {
  if (op == "in" || op == "not in") {
    interpreter.charge(b.shape().weight);
    return contains(b, a) == (op == "in");
  }
  interpreter.charge(std::min(a.shape().weight, b.shape().weight));
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if ((a.is_float() && std::isnan(a.as_real())) || (b.is_float() && std::isnan(b.as_real()))) return false;
  const int order = compare(a, b);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

// Python's slices: bounds count from the end where negative, are clipped, and a negative step walks
// backwards.
Value slice(Interpreter& interpreter, const Value& of, const Value& start, const Value& stop, const Value& step) {
  if (of.is_undefined()) fail(of.why_undefined());
  if (!of.is_string() && (!of.is_list() || of.as_list().is_view()))
    fail_unsupported("slicing a " + of.type_name() + " is not supported");
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->is_whole()) fail("slice indices must be integers or None");
  }
  std::vector<size_t> offsets;
  if (of.is_string()) {
    interpreter.charge_text(of.as_string().size());
    offsets = character_offsets(of.as_string());
  }
  const auto size = static_cast<int64_t>(of.is_string() ? offsets.size() - 1 : of.as_list().items.size());
  const int64_t by = std::clamp<int64_t>(step.is_none() ? 1 : step.as_int(), -size - 1, size + 1);
  if (!step.is_none() && step.as_int() == 0) fail("slice step cannot be zero");
  const auto clip = [&](const Value& bound, int64_t fallback) {
    if (bound.is_none()) return fallback;
    int64_t at = bound.as_int();
    if (at < 0) at = at < -size ? -1 : at + size;
    return std::clamp<int64_t>(at, by < 0 ? -1 : 0, by < 0 ? size - 1 : size);
  };
  const int64_t first = clip(start, by < 0 ? size - 1 : 0);
  const int64_t end = clip(stop, by < 0 ? -1 : size);
  if (of.is_string() && by == 1) {
    if (first >= end) return Value::string_like(of, "");
    return Value::string_like(of, of.as_string().substr(offsets[first], offsets[end] - offsets[first]));
  }
  std::string text;
  std::vector<Value> items;
  for (int64_t i = first; by > 0 ? i < end : i > end; i += by) {
    if (of.is_string())
      text.append(of.as_string(), offsets[i], offsets[i + 1] - offsets[i]);
    else
      items.push_back(of.as_list().items[i]);
  }
  interpreter.charge(items.size());
  return of.is_string() ? Value::string_like(of, std::move(text)) : Value::list(std::move(items), of.as_list().kind);
}

}  // namespace moestro::jinja
