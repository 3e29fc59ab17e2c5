#pragma once
// A parsed template. Nesting is bounded by the parser, so that walking and freeing it may recurse.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orchestrator/chat/value.h"

namespace moestro::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kConstant,     // constant
    kName,         // name
    kList,         // parts
    kTuple,        // parts
    kDict,         // parts: key, value, key, value, ...
    kAttribute,    // parts[0] . name
    kItem,         // parts[0] [ parts[1] ]
    kSlice,        // parts[0] [ parts[1] : parts[2] : parts[3] ], each of the three may be null
    kCall,         // parts[0] ( parts[1..], named )
    kFilter,       // parts[0] | name ( parts[1..], named ); parts[0] is null in a filter block
    kTest,         // parts[0] is name ( parts[1..] )
    kUnary,        // name parts[0]: "-", "+", "not"
    kBinary,       // parts[0] name parts[1]: arithmetic, "and", "or"
    kCompare,      // parts[0] ops[0] parts[1] ops[1] ...
    kConditional,  // parts[0] if parts[1] else parts[2] (may be null)
    kConcat,       // parts[0] ~ parts[1] ~ ...
  };
  Kind kind;
  int line = 0;
  int depth = 1;
  std::string name;
  Value constant;
  std::vector<ExprPtr> parts;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr unpacked, unpacked_named;  // *arguments and **arguments of a call, filter or test; each may be null
  std::vector<std::string> ops;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

/// What a `for` or `set` assigns to: a name, an attribute of a namespace, or several of them to unpack into.
struct Target {
  std::string name;
  std::string attribute;       // name.attribute
  std::vector<Target> nested;  // not empty: unpack
};

struct Stmt {
  enum class Kind {
    kText,         // text
    kOutput,       // expr
    kIf,           // branches; one with a null condition is the else
    kFor,          // target in expr [if filter]: body, otherwise
    kSet,          // target = expr
    kSetBlock,     // target = body, through expr (a filter chain) if there is one
    kMacro,        // text(parameters): body
    kCallBlock,    // expr with body as caller(parameters)
    kFilterBlock,  // body through expr
    kWith,         // assignments: body
    kScope,        // body ({% generation %})
    kBreak,
    kContinue,
  };
  Kind kind;
  int line = 0;
  std::string text;
  ExprPtr expr, filter;
  Target target;
  Body body, otherwise;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // default may be null
  bool takes_varargs = false, takes_kwargs = false;
};

struct Template {
  Body body;
};

/// Throws TemplateError.
Template parse_template(std::string_view source);

}  // namespace moestro::jinja
