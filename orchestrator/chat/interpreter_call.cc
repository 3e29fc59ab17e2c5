// Macros, calls, attributes and items.
#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

Value missing(const Value& of, const std::string& name) {
  return Value::undefined("'" + of.type_name() + " object' has no attribute '" + name + "'");
}

// A sequence's or string's position, counted from the end where negative; npos if it lies outside.
size_t position(int64_t index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  return index < 0 || index >= static_cast<int64_t>(size) ? std::string::npos : static_cast<size_t>(index);
}

}  // namespace

// A macro sees the variables of the block it stands in, as they are when it is called. It does not own that
// block (the block owns it), so it fails if it is called after the block has ended.
Value Interpreter::make_macro(const Stmt& stmt) {
  const std::weak_ptr<Scope> around = scope_;
  return Value::callable(stmt.text, [&stmt, around](Interpreter& interpreter, Arguments& arguments) {
    const auto scope = around.lock();
    if (!scope) fail("the macro '" + stmt.text + "' is called outside of the block that defines it");
    return interpreter.call_macro(stmt, scope, arguments);
  });
}

Value Interpreter::call_macro(const Stmt& stmt, const std::shared_ptr<Scope>& around, Arguments& arguments) {
  auto scope = std::make_shared<Scope>();
  scope->parent = around;
  const auto saved = std::exchange(scope_, std::move(scope));
  const int loops = std::exchange(loop_depth_, 0);
  bind_parameters(stmt, arguments);
  std::string text = capture(stmt.body);
  loop_depth_ = loops;
  scope_ = saved;
  return Value::string(std::move(text));
}

void Interpreter::bind_parameters(const Stmt& stmt, Arguments& arguments) {
  for (size_t i = 0; i < stmt.parameters.size(); ++i) {
    const std::string& name = stmt.parameters[i].first;
    const ExprPtr& fallback = stmt.parameters[i].second;
    const auto named =
        std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& n) { return n.first == name; });
    if (i < arguments.positional.size()) {
      if (named != arguments.named.end()) fail("the macro '" + stmt.text + "' got two values for '" + name + "'");
      scope_->set(name, arguments.positional[i]);
    } else if (named != arguments.named.end()) {
      scope_->set(name, named->second);
      arguments.named.erase(named);
    } else {
      scope_->set(name, fallback ? eval(*fallback) : Value::undefined("parameter '" + name + "' was not provided"));
    }
  }
  bind_extra(stmt, arguments);
}

void Interpreter::bind_extra(const Stmt& stmt, Arguments& arguments) {
  const auto caller =
      std::find_if(arguments.named.begin(), arguments.named.end(), [](const auto& n) { return n.first == "caller"; });
  if (caller != arguments.named.end()) {
    scope_->set("caller", caller->second);
    arguments.named.erase(caller);
  }
  const size_t wanted = stmt.parameters.size();
  std::vector<Value> extra;
  if (arguments.positional.size() > wanted) {
    if (!stmt.takes_varargs)
      fail("the macro '" + stmt.text + "' takes not more than " + std::to_string(wanted) + " argument(s)");
    extra.assign(arguments.positional.begin() + static_cast<long>(wanted), arguments.positional.end());
  }
  if (stmt.takes_varargs) scope_->set("varargs", Value::list(std::move(extra), List::Kind::kTuple));
  if (!stmt.takes_kwargs) {
    if (!arguments.named.empty())
      fail("the macro '" + stmt.text + "' takes no argument '" + arguments.named[0].first + "'");
    return;
  }
  std::vector<std::pair<Value, Value>> named;
  for (auto& [name, value] : arguments.named) named.emplace_back(Value::string(name), std::move(value));
  scope_->set("kwargs", Value::dict(std::move(named)));
}

void Interpreter::run_call_block(const Stmt& stmt) {
  const std::shared_ptr<Scope> around = scope_;
  emit(to_text(eval_call(*stmt.expr, make_macro(stmt))));
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  charge(1);
  if (callee.type() == Value::Type::kCallable) return callee.as_callable().call(*this, arguments);
  if (callee.is_undefined()) fail(callee.why_undefined());
  fail("'" + callee.type_name() + "' object is not callable");
}

Value Interpreter::attribute(const Value& of, const std::string& name) {
  if (of.is_undefined()) fail(of.why_undefined());
  if (of.type() == Value::Type::kLoop) return loop_attribute(of, name);
  if (of.type() == Value::Type::kNamespace) {
    for (const auto& [key, value] : of.as_namespace().items) {
      if (key == name) return value;
    }
    return missing(of, name);
  }
  if (of.type() == Value::Type::kCallable) fail_unsupported("attributes of a " + of.type_name() + " are not supported");
  if (auto method = find_method(of, name)) return *std::move(method);
  if (of.is_dict()) {
    charge(of.as_dict().items.size() / 16);
    if (const Value* found = of.as_dict().find(std::string_view(name))) return *found;
  }
  return missing(of, name);
}

Value Interpreter::item(const Value& of, const Value& key) {
  if (of.is_undefined()) fail(of.why_undefined());
  if (of.is_dict()) {
    charge(of.as_dict().items.size() / 16);
    if (const Value* found = of.as_dict().find(key)) return *found;
  } else if (of.is_list() && !of.as_list().is_view() && key.is_whole()) {
    const auto& items = of.as_list().items;
    const size_t at = position(key.as_int(), items.size());
    if (at == std::string::npos) return Value::undefined("list object has no element " + std::to_string(key.as_int()));
    return items[at];
  } else if (of.is_string() && key.is_whole()) {
    charge_text(of.as_string().size());
    const auto offsets = character_offsets(of.as_string());
    const size_t at = position(key.as_int(), offsets.size() - 1);
    if (at == std::string::npos) return Value::undefined("str object has no element " + std::to_string(key.as_int()));
    return Value::string_like(of, of.as_string().substr(offsets[at], offsets[at + 1] - offsets[at]));
  }
  if (key.is_string()) return attribute(of, key.as_string());
  return Value::undefined("'" + of.type_name() + " object' has no such element");
}

Value Interpreter::loop_attribute(const Value& loop, const std::string& name) {
  const LoopState& state = loop.as_loop();
  const Items& items = state.items;
  const auto index = static_cast<int64_t>(state.index), size = static_cast<int64_t>(items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index == size - 1);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(state.nesting);
  if (name == "depth0") return Value::integer(state.nesting - 1);
  if (name == "previtem") return index == 0 ? Value::undefined("there is no previous item") : items[state.index - 1];
  if (name == "nextitem") return index == size - 1 ? Value::undefined("there is no next item") : items[state.index + 1];
  if (name == "cycle") {
    return Value::callable("cycle", [loop](Interpreter&, Arguments& arguments) {
      if (arguments.positional.empty()) fail("no items for cycling given");
      return arguments.positional[loop.as_loop().index % arguments.positional.size()];
    });
  }
  if (name == "changed") fail_unsupported("loop.changed is not supported");
  return missing(loop, name);
}

}  // namespace moestro::jinja
