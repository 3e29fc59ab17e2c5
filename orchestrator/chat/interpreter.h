#pragma once
// Runs a parsed template once. Owned by the thread that renders.

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "orchestrator/chat/ast.h"

namespace moestro::jinja {

/// The variables of one block; outer ones are read through `parent`.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

constexpr uint64_t kUnitsMax = 10'000'000;  // about a second of the worst template, 160 MB written in all

class Interpreter {
 public:
  /// units_max: the most work of one rendering (charge).
  Interpreter(std::vector<std::pair<std::string, Value>> globals, std::chrono::system_clock::time_point now,
              uint64_t units_max = kUnitsMax, std::stop_token stop = {});

  std::string render(const Template& body);

  /// Counts work; throws kExhausted past the limit, and kCancelled once a stop was asked for. One unit is about one
  /// operation, or 16 bytes made.
  void charge(uint64_t units);
  void charge_text(size_t bytes) { charge(1 + bytes / 16); }
  std::chrono::system_clock::time_point now() const { return now_; }

  Value call(const Value& callee, Arguments& arguments);
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  Value apply_filter(const std::string& name, const Value& value, Arguments& arguments);
  bool apply_test(const std::string& name, const Value& value, Arguments& arguments);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  /// Bounds the recursion of statements and expressions, and so of macros.
  class Deeper {
   public:
    explicit Deeper(int& depth);
    ~Deeper() { --depth_; }

   private:
    int& depth_;
  };

  Flow run(const Body& body);
  Flow run(const Stmt& stmt);
  Flow run_if(const Stmt& stmt);
  Flow run_for(const Stmt& stmt);
  Flow run_scoped(const Stmt& stmt, std::shared_ptr<Scope> scope);
  void run_call_block(const Stmt& stmt);
  std::string capture(const Body& body);
  void emit(std::string_view text);
  void assign(const Target& target, const Value& value);
  void assign_attribute(const Target& target, const Value& value);
  Items loop_items(const Stmt& stmt, const Value& source);
  Value make_macro(const Stmt& stmt);
  Value call_macro(const Stmt& stmt, const std::shared_ptr<Scope>& around, Arguments& arguments);
  void bind_parameters(const Stmt& stmt, Arguments& arguments);
  void bind_extra(const Stmt& stmt, Arguments& arguments);

  Value eval(const Expr& expr);
  Value eval_here(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_filter(const Expr& expr, const Value* subject);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& parts, size_t from);
  Arguments eval_arguments(const Expr& call);
  Value eval_call(const Expr& call, Value caller);
  Value loop_attribute(const Value& loop, const std::string& name);

  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  std::chrono::system_clock::time_point now_;
  uint64_t units_left_;
  std::stop_token stop_;
  int depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace moestro::jinja
