#include "orchestrator/chat/parser.h"

#include <algorithm>

#include "orchestrator/chat/error.h"

namespace moestro::jinja {
namespace {

using Kind = Token::Kind;
constexpr int kStatementNestingMax = 100;

std::string describe(const Token& token) {
  switch (token.kind) {
    case Kind::kEnd:
      return "the end of the template";
    case Kind::kText:
      return "text";
    case Kind::kVariableBegin:
      return "'{{'";
    case Kind::kVariableEnd:
      return "'}}'";
    case Kind::kBlockBegin:
      return "'{%'";
    case Kind::kBlockEnd:
      return "'%}'";
    case Kind::kString:
      return "a string";
    default:
      return "'" + token.text + "'";
  }
}

std::unique_ptr<Stmt> statement(Stmt::Kind kind, int line) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = line;
  return stmt;
}

}  // namespace

Template parse_template(std::string_view source) {
  return Template{Parser(tokenize(source)).parse()};
}

Token Parser::take() {
  Token token = peek();
  if (pos_ < tokens_.size() - 1) ++pos_;
  return token;
}

bool Parser::is_operator(std::string_view op, size_t ahead) const {
  return peek(ahead).kind == Kind::kOperator && peek(ahead).text == op;
}
bool Parser::is_name(std::string_view name, size_t ahead) const {
  return peek(ahead).kind == Kind::kName && peek(ahead).text == name;
}
bool Parser::accept_operator(std::string_view op) {
  return is_operator(op) && (++pos_, true);
}
bool Parser::accept_name(std::string_view name) {
  return is_name(name) && (++pos_, true);
}
void Parser::expect_operator(std::string_view op) {
  if (!accept_operator(op)) fail_here("'" + std::string(op) + "'");
}
void Parser::expect_name(std::string_view name) {
  if (!accept_name(name)) fail_here("'" + std::string(name) + "'");
}
std::string Parser::expect_identifier() {
  if (peek().kind != Kind::kName) fail_here("a name");
  return take().text;
}
void Parser::expect_block_end() {
  if (peek().kind != Kind::kBlockEnd) fail_here("'%}'");
  take();
}
void Parser::fail_here(const std::string& wanted) const {
  fail("expected " + wanted + ", found " + describe(peek()), peek().line);
}

Body Parser::parse() {
  Body body = parse_body({});
  if (peek().kind == Kind::kBlockBegin) {
    fail_unsupported("the tag '" + peek(1).text + "' is not expected here or not supported", peek().line);
  }
  return body;
}

// Statements up to a block whose tag is one of `ends`; that block's "{%" is the next token then.
Body Parser::parse_body(const std::vector<std::string>& ends) {
  if (++nesting_ > kStatementNestingMax) fail_exhausted("the template nests more than 100 levels deep");
  Body body;
  for (;;) {
    const Token& token = peek();
    if (token.kind == Kind::kEnd) {
      if (!ends.empty()) fail_here("{% " + ends.back() + " %}");
      break;
    }
    if (token.kind == Kind::kText) {
      auto stmt = statement(Stmt::Kind::kText, token.line);
      stmt->text = take().text;
      body.push_back(std::move(stmt));
    } else if (token.kind == Kind::kVariableBegin) {
      auto stmt = statement(Stmt::Kind::kOutput, token.line);
      take();
      stmt->expr = parse_tuple(true);
      if (peek().kind != Kind::kVariableEnd) fail_here("'}}'");
      take();
      body.push_back(std::move(stmt));
    } else {
      const Token& tag = peek(1);
      if (tag.kind != Kind::kName) fail("expected the name of a tag, found " + describe(tag), tag.line);
      if (std::find(ends.begin(), ends.end(), tag.text) != ends.end()) break;
      take();
      body.push_back(parse_block());
    }
  }
  --nesting_;
  return body;
}

// The body of a block with variables of its own.
Body Parser::parse_scope(const std::vector<std::string>& ends) {
  const int conditions = std::exchange(conditions_, 0);
  Body body = parse_body(ends);
  conditions_ = conditions;
  return body;
}

std::unique_ptr<Stmt> Parser::parse_block() {
  const Token tag = take();
  if (tag.text == "if") return parse_if();
  if (tag.text == "for") return parse_for();
  if (tag.text == "set") return parse_set();
  if (tag.text == "macro") return parse_macro();
  if (tag.text == "call") return parse_call_block();
  if (tag.text == "filter") return parse_filter_block();
  if (tag.text == "with") return parse_with();
  if (tag.text == "generation") {
    auto stmt = statement(Stmt::Kind::kScope, tag.line);
    expect_block_end();
    stmt->body = parse_scope({"endgeneration"});
    end_block("endgeneration");
    return stmt;
  }
  if (tag.text == "break" || tag.text == "continue") {
    if (loops_ == 0) fail("'" + tag.text + "' outside of a loop", tag.line);
    expect_block_end();
    return statement(tag.text == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue, tag.line);
  }
  fail_unsupported("the tag '" + tag.text + "' is not expected here or not supported", tag.line);
}

void Parser::end_block(const std::string& end) {
  take();  // "{%"
  expect_name(end);
  expect_block_end();
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto stmt = statement(Stmt::Kind::kIf, peek().line);
  ++conditions_;
  std::string tag = "elif";
  while (tag == "elif") {
    ExprPtr condition = parse_tuple(false);
    expect_block_end();
    Body body = parse_body({"elif", "else", "endif"});
    stmt->branches.emplace_back(std::move(condition), std::move(body));
    take();
    tag = take().text;
  }
  expect_block_end();
  if (tag == "else") {
    stmt->branches.emplace_back(nullptr, parse_body({"endif"}));
    end_block("endif");
  }
  --conditions_;
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto stmt = statement(Stmt::Kind::kFor, peek().line);
  stmt->target = parse_target(false);
  expect_name("in");
  stmt->expr = parse_tuple(false);
  if (accept_name("if")) stmt->filter = parse_expression();
  if (is_name("recursive")) fail_unsupported("a recursive loop is not supported", peek().line);
  expect_block_end();
  ++loops_;
  stmt->body = parse_scope({"else", "endfor"});
  --loops_;
  take();
  if (accept_name("else")) {
    expect_block_end();
    stmt->otherwise = parse_scope({"endfor"});
    end_block("endfor");
  } else {
    expect_name("endfor");
    expect_block_end();
  }
  return stmt;
}

Target Parser::parse_one_target(bool with_attribute) {
  Target target;
  if (accept_operator("(")) {
    target = parse_target(with_attribute);
    expect_operator(")");
    return target;
  }
  target.name = expect_identifier();
  if (target.name == "true" || target.name == "false" || target.name == "none" || target.name == "True" ||
      target.name == "False" || target.name == "None") {
    fail("cannot assign to '" + target.name + "'", peek().line);
  }
  if (with_attribute && accept_operator(".")) target.attribute = expect_identifier();
  return target;
}

Target Parser::parse_target(bool with_attribute) {
  if (++nesting_ > kStatementNestingMax) fail_exhausted("the template nests more than 100 levels deep");
  Target first = parse_one_target(with_attribute);
  if (is_operator(",")) {
    Target all;
    all.nested.push_back(std::move(first));
    while (accept_operator(",")) {
      if (peek().kind != Kind::kName && !is_operator("(")) break;
      if (is_name("in")) break;
      all.nested.push_back(parse_one_target(with_attribute));
    }
    first = std::move(all);
  }
  --nesting_;
  return first;
}

std::unique_ptr<Stmt> Parser::parse_set() {
  auto stmt = statement(Stmt::Kind::kSet, peek().line);
  stmt->target = parse_target(true);
  if (accept_operator("=")) {
    stmt->expr = parse_tuple(true);
    expect_block_end();
    return stmt;
  }
  stmt->kind = Stmt::Kind::kSetBlock;
  if (is_operator("|")) stmt->expr = parse_filters(nullptr);
  expect_block_end();
  stmt->body = parse_scope({"endset"});
  end_block("endset");
  return stmt;
}

void Parser::parse_parameters(Stmt& stmt) {
  expect_operator("(");
  while (!accept_operator(")")) {
    if (!stmt.parameters.empty()) {
      expect_operator(",");
      if (accept_operator(")")) break;
    }
    std::string name = expect_identifier();
    ExprPtr fallback;
    if (accept_operator("="))
      fallback = parse_expression();
    else if (!stmt.parameters.empty() && stmt.parameters.back().second != nullptr) {
      fail("the parameter '" + name + "' without a default follows one with a default", stmt.line);
    }
    stmt.parameters.emplace_back(std::move(name), std::move(fallback));
  }
}

void Parser::parse_function_body(Stmt& stmt, const std::string& end) {
  expect_block_end();
  functions_.push_back(&stmt);
  const int loops = std::exchange(loops_, 0);
  stmt.body = parse_scope({end});
  loops_ = loops;
  functions_.pop_back();
  end_block(end);
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto stmt = statement(Stmt::Kind::kMacro, peek().line);
  stmt->text = expect_identifier();
  parse_parameters(*stmt);
  parse_function_body(*stmt, "endmacro");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  auto stmt = statement(Stmt::Kind::kCallBlock, peek().line);
  stmt->text = "caller";
  if (is_operator("(")) parse_parameters(*stmt);
  stmt->expr = parse_expression();
  if (stmt->expr->kind != Expr::Kind::kCall) fail("{% call %} needs a call", stmt->line);
  parse_function_body(*stmt, "endcall");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto stmt = statement(Stmt::Kind::kFilterBlock, peek().line);
  stmt->expr = parse_filters(parse_one_filter(nullptr));
  expect_block_end();
  stmt->body = parse_scope({"endfilter"});
  end_block("endfilter");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto stmt = statement(Stmt::Kind::kWith, peek().line);
  while (peek().kind != Kind::kBlockEnd) {
    if (!stmt->assignments.empty()) expect_operator(",");
    Target target = parse_one_target(false);
    expect_operator("=");
    stmt->assignments.emplace_back(std::move(target), parse_expression());
  }
  expect_block_end();
  stmt->body = parse_scope({"endwith"});
  end_block("endwith");
  return stmt;
}

}  // namespace moestro::jinja
