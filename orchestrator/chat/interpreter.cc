#include "orchestrator/chat/interpreter.h"

#include <algorithm>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/library.h"

namespace moestro::jinja {
namespace {

constexpr int kCallDepthMax = 400;
constexpr size_t kOutputBytesMax = size_t{128} << 20;

class ScopeGuard {
 public:
  ScopeGuard(std::shared_ptr<Scope>& slot, std::shared_ptr<Scope> scope)
      : slot_(slot), saved_(std::exchange(slot, std::move(scope))) {}
  ~ScopeGuard() { slot_ = std::move(saved_); }

 private:
  std::shared_ptr<Scope>& slot_;
  std::shared_ptr<Scope> saved_;
};

std::shared_ptr<Scope> scope_within(const std::shared_ptr<Scope>& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(std::vector<std::pair<std::string, Value>> globals, std::chrono::system_clock::time_point now,
                         uint64_t units_max, std::stop_token stop)
    : scope_(std::make_shared<Scope>()), now_(now), units_left_(units_max), stop_(std::move(stop)) {
  scope_->variables = std::move(globals);
}

Interpreter::Deeper::Deeper(int& depth) : depth_(depth) {
  if (depth_ >= kCallDepthMax) fail_exhausted("the template calls or nests more than 400 levels deep");
  ++depth_;
}

void Interpreter::charge(uint64_t units) {
  if (units > units_left_) fail_exhausted("the template takes too many steps");
  units_left_ -= units;
  if (stop_.stop_requested()) fail_cancelled("nobody wants the text any more");
}

std::string Interpreter::render(const Template& body) {
  std::string out;
  out_ = &out;
  run(body.body);
  return out;
}

void Interpreter::emit(std::string_view text) {
  charge_text(text.size());
  if (out_->size() + text.size() > kOutputBytesMax) fail_exhausted("the template writes more than 128 MiB");
  *out_ += text;
}

std::string Interpreter::capture(const Body& body) {
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  run(body);
  out_ = outer;
  return text;
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& stmt : body) {
    const Flow flow = run(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run(const Stmt& stmt) {
  charge(1);
  const Deeper deeper(depth_);
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      emit(stmt.text);
      break;
    case Stmt::Kind::kOutput: {
      const Value value = eval(*stmt.expr);
      charge(value.shape().weight);
      emit(to_text(value));
      break;
    }
    case Stmt::Kind::kIf:
      return run_if(stmt);
    case Stmt::Kind::kFor:
      return run_for(stmt);
    case Stmt::Kind::kSet:
      assign(stmt.target, eval(*stmt.expr));
      break;
    case Stmt::Kind::kSetBlock: {
      std::string text;
      {
        const ScopeGuard guard(scope_, scope_within(scope_));
        text = capture(stmt.body);
      }
      Value value = Value::string(std::move(text));
      if (stmt.expr) value = eval_filter(*stmt.expr, &value);
      assign(stmt.target, value);
      break;
    }
    case Stmt::Kind::kMacro:
      scope_->set(stmt.text, make_macro(stmt));
      break;
    case Stmt::Kind::kCallBlock:
      run_call_block(stmt);
      break;
    case Stmt::Kind::kFilterBlock: {
      const ScopeGuard guard(scope_, scope_within(scope_));
      const Value text = Value::string(capture(stmt.body));
      emit(to_text(eval_filter(*stmt.expr, &text)));
      break;
    }
    case Stmt::Kind::kWith: {
      auto scope = scope_within(scope_);
      for (const auto& [target, expr] : stmt.assignments) {
        const Value value = eval(*expr);
        const ScopeGuard guard(scope_, scope);
        assign(target, value);
      }
      return run_scoped(stmt, std::move(scope));
    }
    case Stmt::Kind::kScope:
      return run_scoped(stmt, scope_within(scope_));
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_scoped(const Stmt& stmt, std::shared_ptr<Scope> scope) {
  const ScopeGuard guard(scope_, std::move(scope));
  return run(stmt.body);
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt) {
  for (const auto& [condition, body] : stmt.branches) {
    if (!condition || eval(*condition).truthy()) return run(body);
  }
  return Flow::kNormal;
}

// What the loop walks: the items that pass its `if`, which sees the target but not `loop`.
Items Interpreter::loop_items(const Stmt& stmt, const Value& source) {
  if (source.is_string()) charge(source.as_string().size());
  Items items = iterate(source);
  charge(items.size());
  if (!stmt.filter) return items;
  std::vector<Value> kept;
  for (const Value& item : items) {
    const ScopeGuard guard(scope_, scope_within(scope_));
    assign(stmt.target, item);
    if (eval(*stmt.filter).truthy()) kept.push_back(item);
  }
  return Items(std::move(kept));
}

Interpreter::Flow Interpreter::run_for(const Stmt& stmt) {
  const Value source = eval(*stmt.expr);
  auto state = std::make_shared<LoopState>();
  state->items = loop_items(stmt, source);
  state->shape = source.shape();
  state->nesting = ++loop_depth_;
  const Value loop = Value::loop(state);
  bool ended = false;  // a round reached its end; else Jinja2 runs `else`, even after a break or continue
  for (const Value& item : state->items) {
    charge(1);
    const ScopeGuard guard(scope_, scope_within(scope_));
    scope_->set("loop", loop);
    assign(stmt.target, item);
    const Flow flow = run(stmt.body);
    ended = ended || flow == Flow::kNormal;
    if (flow == Flow::kBreak && source.is_generator()) source.as_generator().left = true;
    if (flow == Flow::kBreak) break;
    ++state->index;
  }
  --loop_depth_;
  if (ended) return Flow::kNormal;
  const ScopeGuard guard(scope_, scope_within(scope_));
  return run(stmt.otherwise);
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.nested.empty()) {
    if (!target.attribute.empty()) return assign_attribute(target, value);
    return scope_->set(target.name, value);
  }
  const Items items = iterate(value);
  if (items.size() != target.nested.size()) {
    fail("cannot unpack " + std::to_string(items.size()) + " values into " + std::to_string(target.nested.size()));
  }
  for (size_t i = 0; i < target.nested.size(); ++i) assign(target.nested[i], items[i]);
}

void Interpreter::assign_attribute(const Target& target, const Value& value) {
  const Value* owner = scope_->find(target.name);
  if (owner == nullptr || owner->type() != Value::Type::kNamespace)
    fail("cannot assign attribute on non-namespace object");
  check_namespace_item(target.attribute, value);
  for (auto& [key, old] : owner->as_namespace().items) {
    if (key == target.attribute) {
      old = value;
      return;
    }
  }
  owner->as_namespace().items.emplace_back(target.attribute, value);
}

}  // namespace moestro::jinja
