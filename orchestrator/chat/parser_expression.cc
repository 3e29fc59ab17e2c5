#include <algorithm>
#include <charconv>

#include "orchestrator/chat/error.h"
#include "orchestrator/chat/library.h"
#include "orchestrator/chat/parser.h"

namespace moestro::jinja {
namespace {

using Kind = Token::Kind;
constexpr int kExpressionNestingMax = 100;  // of brackets and statements around an expression
constexpr int kExpressionDepthMax = 200;    // of the tree: chains such as a + b + c grow it without brackets

class Deeper {
 public:
  explicit Deeper(int& nesting) : nesting_(nesting) {
    if (++nesting_ > kExpressionNestingMax) {
      --nesting_;
      fail_exhausted("the template nests more than 100 levels deep");
    }
  }
  ~Deeper() { --nesting_; }

 private:
  int& nesting_;
};

}  // namespace

ExprPtr Parser::make(Expr::Kind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr Parser::measured(ExprPtr expr) const {
  for (const auto& part : expr->parts) {
    if (part) expr->depth = std::max(expr->depth, part->depth + 1);
  }
  for (const auto& [name, part] : expr->named) expr->depth = std::max(expr->depth, part->depth + 1);
  for (const ExprPtr* part : {&expr->unpacked, &expr->unpacked_named}) {
    if (*part) expr->depth = std::max(expr->depth, (*part)->depth + 1);
  }
  if (expr->depth > kExpressionDepthMax) fail_exhausted("an expression is more than 200 operations deep");
  return expr;
}

ExprPtr Parser::binary(const std::string& op, ExprPtr left, ExprPtr right, int line) const {
  ExprPtr expr = make(Expr::Kind::kBinary, line);
  expr->name = op;
  expr->parts.push_back(std::move(left));
  expr->parts.push_back(std::move(right));
  return measured(std::move(expr));
}

ExprPtr Parser::parse_expression() {
  const Deeper deeper(nesting_);
  ExprPtr value = parse_or();
  while (is_name("if")) {
    ExprPtr expr = make(Expr::Kind::kConditional, take().line);
    expr->parts.push_back(std::move(value));
    expr->parts.push_back(parse_or());
    expr->parts.push_back(accept_name("else") ? parse_expression() : nullptr);
    value = measured(std::move(expr));
  }
  return value;
}

// One expression, or several with commas: a tuple.
ExprPtr Parser::parse_tuple(bool with_condition) {
  const auto one = [&] { return with_condition ? parse_expression() : parse_or(); };
  const int line = peek().line;
  const Deeper deeper(nesting_);
  ExprPtr first = one();
  if (!is_operator(",")) return first;
  ExprPtr tuple = make(Expr::Kind::kTuple, line);
  tuple->parts.push_back(std::move(first));
  while (accept_operator(",")) {
    if (is_operator(")") || peek().kind == Kind::kBlockEnd || peek().kind == Kind::kVariableEnd) break;
    tuple->parts.push_back(one());
  }
  return measured(std::move(tuple));
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (is_name("or")) {
    const int line = take().line;
    left = binary("or", std::move(left), parse_and(), line);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (is_name("and")) {
    const int line = take().line;
    left = binary("and", std::move(left), parse_not(), line);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Deeper deeper(nesting_);
  ExprPtr expr = make(Expr::Kind::kUnary, take().line);
  expr->name = "not";
  expr->parts.push_back(parse_not());
  return measured(std::move(expr));
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr expr;
  for (;;) {
    std::string op;
    if (peek().kind == Kind::kOperator) {
      for (const std::string_view known : {"==", "!=", "<", "<=", ">", ">="}) {
        if (peek().text == known) op = known;
      }
      if (op.empty()) break;
      take();
    } else if (accept_name("in")) {
      op = "in";
    } else if (is_name("not") && is_name("in", 1)) {
      take();
      take();
      op = "not in";
    } else {
      break;
    }
    if (!expr) {
      expr = make(Expr::Kind::kCompare, peek().line);
      expr->parts.push_back(std::move(first));
    }
    expr->ops.push_back(op);
    expr->parts.push_back(parse_sum());
  }
  return expr ? measured(std::move(expr)) : std::move(first);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    const Token op = take();
    left = binary(op.text, std::move(left), parse_concat(), op.line);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!is_operator("~")) return first;
  ExprPtr expr = make(Expr::Kind::kConcat, peek().line);
  expr->parts.push_back(std::move(first));
  while (accept_operator("~")) expr->parts.push_back(parse_product());
  return measured(std::move(expr));
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const Token op = take();
    left = binary(op.text, std::move(left), parse_power(), op.line);
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (is_operator("**")) {
    const int line = take().line;
    left = binary("**", std::move(left), parse_unary(true), line);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  ExprPtr expr;
  if (is_operator("-") || is_operator("+")) {
    const Deeper deeper(nesting_);
    const Token op = take();
    expr = make(Expr::Kind::kUnary, op.line);
    expr->name = op.text;
    expr->parts.push_back(parse_unary(false));
    expr = measured(std::move(expr));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary() {
  const Token& token = peek();
  if (token.kind == Kind::kName) return parse_name_or_constant();
  if (token.kind == Kind::kString) {
    ExprPtr expr = make(Expr::Kind::kConstant, token.line);
    std::string text;
    while (peek().kind == Kind::kString) text += take().text;
    expr->constant = Value::string(std::move(text));
    return expr;
  }
  if (token.kind == Kind::kInteger || token.kind == Kind::kFloat) {
    ExprPtr expr = make(Expr::Kind::kConstant, token.line);
    const std::string text = take().text;
    const char* end = text.data() + text.size();
    if (token.kind == Kind::kInteger || text.find_first_not_of("0123456789") == std::string::npos) {
      int64_t number = 0;
      if (std::from_chars(text.data(), end, number).ptr != end)
        fail("the number " + text + " is too large", expr->line);
      expr->constant = Value::integer(number);
    } else {
      double number = 0;
      const auto parsed = std::from_chars(text.data(), end, number);
      if (parsed.ec != std::errc()) fail("the number " + text + " is out of range", expr->line);
      expr->constant = Value::real(number);
    }
    return expr;
  }
  if (is_operator("(")) return parse_parenthesized();
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  fail_here("an expression");
}

ExprPtr Parser::parse_name_or_constant() {
  const Token token = take();
  const std::string& name = token.text;
  ExprPtr expr = make(Expr::Kind::kConstant, token.line);
  if (name == "true" || name == "True") return expr->constant = Value::boolean(true), std::move(expr);
  if (name == "false" || name == "False") return expr->constant = Value::boolean(false), std::move(expr);
  if (name == "none" || name == "None") return expr->constant = Value::none(), std::move(expr);
  expr->kind = Expr::Kind::kName;
  expr->name = name;
  for (Stmt* function : functions_) {
    function->takes_varargs = function->takes_varargs || name == "varargs";
    function->takes_kwargs = function->takes_kwargs || name == "kwargs";
  }
  return expr;
}

ExprPtr Parser::parse_parenthesized() {
  const int line = take().line;
  if (accept_operator(")")) return make(Expr::Kind::kTuple, line);
  ExprPtr inner = parse_tuple(true);
  expect_operator(")");
  return inner;
}

ExprPtr Parser::parse_list() {
  ExprPtr list = make(Expr::Kind::kList, take().line);
  while (!accept_operator("]")) {
    if (!list->parts.empty()) {
      expect_operator(",");
      if (accept_operator("]")) break;
    }
    list->parts.push_back(parse_expression());
  }
  return measured(std::move(list));
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = make(Expr::Kind::kDict, take().line);
  while (!accept_operator("}")) {
    if (!dict->parts.empty()) {
      expect_operator(",");
      if (accept_operator("}")) break;
    }
    dict->parts.push_back(parse_expression());
    expect_operator(":");
    dict->parts.push_back(parse_expression());
  }
  return measured(std::move(dict));
}

ExprPtr Parser::parse_postfix(ExprPtr of) {
  for (;;) {
    if (is_operator(".")) {
      ExprPtr expr = make(Expr::Kind::kAttribute, take().line);
      if (peek().kind == Kind::kInteger) {
        expr->kind = Expr::Kind::kItem;
        expr->parts.push_back(std::move(of));
        expr->parts.push_back(parse_primary());
      } else {
        expr->name = expect_identifier();
        expr->parts.push_back(std::move(of));
      }
      of = measured(std::move(expr));
    } else if (is_operator("[")) {
      of = parse_subscript(std::move(of));
    } else if (is_operator("(")) {
      ExprPtr call = make(Expr::Kind::kCall, peek().line);
      call->parts.push_back(std::move(of));
      parse_arguments(*call);
      of = measured(std::move(call));
    } else {
      return of;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr of) {
  ExprPtr expr = make(Expr::Kind::kItem, take().line);
  expr->parts.push_back(std::move(of));
  ExprPtr first = is_operator(":") ? nullptr : parse_expression();
  if (!is_operator(":")) {
    if (is_operator(",")) fail_unsupported("a subscript of several values is not supported", expr->line);
    expr->parts.push_back(std::move(first));
    expect_operator("]");
    return measured(std::move(expr));
  }
  expr->kind = Expr::Kind::kSlice;
  expr->parts.push_back(std::move(first));
  for (int i = 0; i < 2; ++i) {
    const bool given = accept_operator(":") && !is_operator(":") && !is_operator("]");
    expr->parts.push_back(given ? parse_expression() : nullptr);
  }
  expect_operator("]");
  return measured(std::move(expr));
}

void Parser::parse_arguments(Expr& call) {
  expect_operator("(");
  bool first = true;
  while (!accept_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (accept_operator(")")) break;
    }
    first = false;
    if (is_operator("*") || is_operator("**")) {
      ExprPtr& unpacked = is_operator("*") ? call.unpacked : call.unpacked_named;
      if (unpacked || call.unpacked_named) fail_here("a name");
      take();
      unpacked = parse_expression();
      continue;
    }
    if (peek().kind == Kind::kName && is_operator("=", 1)) {
      if (call.unpacked_named) fail("a named argument follows '**'", peek().line);
      std::string name = take().text;
      take();
      call.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!call.named.empty() || call.unpacked || call.unpacked_named)
        fail("a positional argument follows a named or unpacked one", peek().line);
      call.parts.push_back(parse_expression());
    }
  }
}

ExprPtr Parser::parse_filters(ExprPtr of) {
  for (;;) {
    if (accept_operator("|")) {
      of = parse_one_filter(std::move(of));
    } else if (is_name("is")) {
      of = parse_test(std::move(of));
    } else if (of && is_operator("(")) {
      of = parse_postfix(std::move(of));
    } else {
      return of;
    }
  }
}

// Of a filter or test: there is none whose name has a dot, but `x|trim.y` means just that.
std::string Parser::parse_dotted_name() {
  std::string name = expect_identifier();
  while (accept_operator(".")) name += "." + expect_identifier();
  return name;
}

ExprPtr Parser::parse_one_filter(ExprPtr of) {
  ExprPtr expr = make(Expr::Kind::kFilter, peek().line);
  expr->name = parse_dotted_name();
  if (conditions_ == 0 && find_filter(expr->name) == nullptr)
    fail_unsupported("the filter '" + expr->name + "' is not supported", expr->line);
  expr->parts.push_back(std::move(of));
  if (is_operator("(")) parse_arguments(*expr);
  return measured(std::move(expr));
}

ExprPtr Parser::parse_test(ExprPtr of) {
  ExprPtr expr = make(Expr::Kind::kTest, take().line);
  const bool negated = accept_name("not");
  expr->name = parse_dotted_name();
  if (conditions_ == 0 && find_test(expr->name) == nullptr)
    fail_unsupported("the test '" + expr->name + "' is not supported", expr->line);
  expr->parts.push_back(std::move(of));
  const Token& next = peek();
  const bool value_follows =
      next.kind == Kind::kString || next.kind == Kind::kInteger || next.kind == Kind::kFloat || is_operator("[") ||
      is_operator("{") ||
      (next.kind == Kind::kName && next.text != "else" && next.text != "or" && next.text != "and" &&
       next.text != "if" && next.text != "is" && next.text != "not" && next.text != "in");
  if (is_name("is")) fail("tests cannot be chained with 'is'", next.line);
  if (is_operator("(")) {
    parse_arguments(*expr);
  } else if (value_follows) {
    expr->parts.push_back(parse_postfix(parse_primary()));
  }
  expr = measured(std::move(expr));
  if (!negated) return expr;
  ExprPtr inverse = make(Expr::Kind::kUnary, expr->line);
  inverse->name = "not";
  inverse->parts.push_back(std::move(expr));
  return measured(std::move(inverse));
}

}  // namespace moestro::jinja
