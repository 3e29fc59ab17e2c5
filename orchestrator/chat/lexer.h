#pragma once
// Template source to tokens, with the whitespace rules of trim_blocks and lstrip_blocks applied.

#include <string>
#include <string_view>
#include <vector>

namespace moestro::jinja {

struct Token {
  enum class Kind {
    kText,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;  ///< for strings: what they mean, escapes resolved
  int line;
};

/// Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace moestro::jinja
