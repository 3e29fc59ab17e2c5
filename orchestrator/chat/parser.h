#pragma once

#include "orchestrator/chat/ast.h"
#include "orchestrator/chat/lexer.h"

namespace moestro::jinja {

/// Recursive descent over the tokens of a template. Every function throws TemplateError.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body parse();

 private:
  // parser.cc: tokens and statements
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)]; }
  Token take();
  bool is_operator(std::string_view op, size_t ahead = 0) const;
  bool is_name(std::string_view name, size_t ahead = 0) const;
  bool accept_operator(std::string_view op);
  bool accept_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_identifier();
  void expect_block_end();
  [[noreturn]] void fail_here(const std::string& wanted) const;

  Body parse_body(const std::vector<std::string>& ends);
  Body parse_scope(const std::vector<std::string>& ends);
  std::unique_ptr<Stmt> parse_block();
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_filter_block();
  std::unique_ptr<Stmt> parse_with();
  void parse_parameters(Stmt& stmt);
  void parse_function_body(Stmt& stmt, const std::string& end);
  void end_block(const std::string& end);
  Target parse_target(bool with_attribute);
  Target parse_one_target(bool with_attribute);

  // parser_expression.cc
  ExprPtr make(Expr::Kind kind, int line) const;
  ExprPtr parse_expression();
  ExprPtr parse_tuple(bool with_condition);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_name_or_constant();
  ExprPtr parse_parenthesized();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr of);
  ExprPtr parse_subscript(ExprPtr of);
  ExprPtr parse_filters(ExprPtr of);
  std::string parse_dotted_name();
  ExprPtr parse_one_filter(ExprPtr of);
  ExprPtr parse_test(ExprPtr of);
  void parse_arguments(Expr& call);
  ExprPtr binary(const std::string& op, ExprPtr left, ExprPtr right, int line) const;
  /// Counts the depth of a finished node; fails where a walk over it would recurse too deeply.
  ExprPtr measured(ExprPtr expr) const;

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;  // of statements and expressions being parsed
  int loops_ = 0;
  int conditions_ = 0;  // {% if %} around here within the innermost other block: what is not known fails when it is
                        // reached, as in Jinja2
  std::vector<Stmt*> functions_;  // macros and call blocks around here
};

}  // namespace moestro::jinja
