#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"

namespace moestro::jinja {
Value Interpreter::eval(const Expr& expr) {
  charge(1);
  const Deeper deeper(depth_);
  try {
    return eval_here(expr);
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = expr.line;
    throw;
  }
}

Value Interpreter::eval_here(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kConstant:
      return expr.constant;
    case Expr::Kind::kName:
      return eval_name(expr);
    case Expr::Kind::kList:
      return Value::list(eval_all(expr.parts, 0));
    case Expr::Kind::kTuple:
      return Value::list(eval_all(expr.parts, 0), List::Kind::kTuple);
    case Expr::Kind::kDict:
      return eval_dict(expr);
    case Expr::Kind::kAttribute:
      return attribute(eval(*expr.parts[0]), expr.name);
    case Expr::Kind::kItem: {
      const Value of = eval(*expr.parts[0]);
      return item(of, eval(*expr.parts[1]));
    }
    case Expr::Kind::kSlice: {
      Value bounds[3] = {Value::none(), Value::none(), Value::none()};
      const Value of = eval(*expr.parts[0]);
      for (size_t i = 0; i < 3; ++i) {
        if (expr.parts[i + 1]) bounds[i] = eval(*expr.parts[i + 1]);
      }
      return slice(*this, of, bounds[0], bounds[1], bounds[2]);
    }
    case Expr::Kind::kCall:
      return eval_call(expr, Value());
    case Expr::Kind::kFilter:
      return eval_filter(expr, nullptr);
    case Expr::Kind::kTest: {
      const Value value = eval(*expr.parts[0]);
      Arguments arguments = eval_arguments(expr);
      return Value::boolean(apply_test(expr.name, value, arguments));
    }
    case Expr::Kind::kUnary:
      return unary_operation(expr.name, eval(*expr.parts[0]));
    case Expr::Kind::kBinary: {
      Value left = eval(*expr.parts[0]);
      if (expr.name == "and") return left.truthy() ? eval(*expr.parts[1]) : left;
      if (expr.name == "or") return left.truthy() ? left : eval(*expr.parts[1]);
      return binary_operation(*this, expr.name, left, eval(*expr.parts[1]));
    }
    case Expr::Kind::kCompare:
      return eval_compare(expr);
    case Expr::Kind::kConditional:
      if (eval(*expr.parts[1]).truthy()) return eval(*expr.parts[0]);
      if (expr.parts[2]) return eval(*expr.parts[2]);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
    case Expr::Kind::kConcat:
      return eval_concat(expr);
  }
  return {};
}

Value Interpreter::eval_name(const Expr& expr) {
  if (const Value* value = scope_->find(expr.name)) return *value;
  if (auto function = find_function(expr.name)) return *function;
  return Value::undefined("'" + expr.name + "' is undefined");
}

Value Interpreter::eval_dict(const Expr& expr) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i + 1 < expr.parts.size(); i += 2) {
    Value key = eval(*expr.parts[i]);
    check_hashable(key);
    set_item(items, std::move(key), eval(*expr.parts[i + 1]));
  }
  return Value::dict(std::move(items));
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.parts[i + 1]);
    if (!comparison(*this, expr.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_concat(const Expr& expr) {
  std::string text;
  for (const auto& part : expr.parts) {
    const Value value = eval(*part);
    charge(value.shape().weight);
    text += to_text(value);
  }
  charge_text(text.size());
  return Value::string(std::move(text));
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& parts, size_t from) {
  std::vector<Value> values;
  for (size_t i = from; i < parts.size(); ++i) values.push_back(eval(*parts[i]));
  return values;
}

Arguments Interpreter::eval_arguments(const Expr& call) {
  Arguments arguments;
  arguments.positional = eval_all(call.parts, 1);
  for (const auto& [name, part] : call.named) arguments.named.emplace_back(name, eval(*part));
  if (call.unpacked) {
    const Items items = iterate(eval(*call.unpacked));
    charge(items.size());
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (call.unpacked_named) {
    const Value named = eval(*call.unpacked_named);
    if (!named.is_dict()) fail("argument after ** must be a mapping, not " + named.type_name());
    charge(named.as_dict().items.size() * (1 + arguments.named.size()));
    for (const auto& [name, value] : named.as_dict().items) {
      if (!name.is_string()) fail("keywords must be strings");
      if (name.is_markup()) fail_unsupported("a keyword from the filter 'safe' is not supported");
      const auto same = [&key = name](const auto& given) { return given.first == key.as_string(); };
      const bool twice = std::any_of(arguments.named.begin(), arguments.named.end(), same);
      if (twice) fail("got multiple values for keyword argument '" + name.as_string() + "'");
      arguments.named.emplace_back(name.as_string(), value);
    }
  }
  return arguments;
}

Value Interpreter::eval_call(const Expr& call_expr, Value caller) {
  const Value callee = eval(*call_expr.parts[0]);
  Arguments arguments = eval_arguments(call_expr);
  if (!caller.is_undefined()) arguments.named.emplace_back("caller", std::move(caller));
  return call(callee, arguments);
}

// `subject`: what a filter block or a block set puts at the start of a chain of filters.
Value Interpreter::eval_filter(const Expr& expr, const Value* subject) {
  if (expr.kind != Expr::Kind::kFilter) return eval(expr);
  Value value;
  if (!expr.parts[0])
    value = subject ? *subject : Value();
  else if (subject != nullptr)
    value = eval_filter(*expr.parts[0], subject);
  else
    value = eval(*expr.parts[0]);
  Arguments arguments = eval_arguments(expr);
  return apply_filter(expr.name, value, arguments);
}

Value Interpreter::apply_filter(const std::string& name, const Value& value, Arguments& arguments) {
  charge(1);
  const Filter filter = find_filter(name);
  if (filter == nullptr) fail_unsupported("the filter '" + name + "' is not supported");
  return filter(*this, value, arguments);
}

bool Interpreter::apply_test(const std::string& name, const Value& value, Arguments& arguments) {
  charge(1);
  const Test test = find_test(name);
  if (test == nullptr) fail_unsupported("the test '" + name + "' is not supported");
  return test(*this, value, arguments);
}

}  // namespace moestro::jinja
