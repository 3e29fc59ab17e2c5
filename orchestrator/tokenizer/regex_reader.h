#pragma once
// The characters of a regex and its escapes, for regex_syntax.cc and regex_class.cc.

#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"
#include "orchestrator/tokenizer/code_point_set.h"

namespace moestro::tok {

/// The beginning of errors: "the regex 'PATTERN'", shortened.
std::string shown_regex(std::string_view pattern);

class RegexReader {
 public:
  /// `pattern` is valid UTF-8.
  explicit RegexReader(std::string_view pattern) : in_(pattern) {}

  bool done() const { return pos_ >= in_.size(); }
  bool at(std::string_view text) const { return in_.substr(pos_).starts_with(text); }
  bool take(std::string_view text);
  char peek() const { return done() ? '\0' : in_[pos_]; }
  char32_t take_char();
  /// Takes the text before the next `end`, and `end` itself. nullopt, and nothing is taken, if there is none.
  std::optional<std::string_view> take_until(std::string_view end);
  std::optional<unsigned> take_number();
  size_t position() const { return pos_; }
  void go_to(size_t position) { pos_ = position; }

  /// After a backslash: the set of \d, \s, \w, \h, \p{...} and their negations, if one of them is next.
  Result<std::optional<CodePointSet>> take_set_escape(bool in_class);
  /// After a backslash: one character, spelled out or as itself.
  Result<char32_t> take_char_escape();

  Status wrong(std::string_view what) const;    ///< kInvalidArgument
  Status unknown(std::string_view what) const;  ///< kUnsupported: "... has WHAT, which is not supported"

 private:
  Result<char32_t> take_code(int base, size_t digits_min, size_t digits_max);
  Result<char32_t> take_braced_code(int base);

  std::string_view in_;
  size_t pos_ = 0;
};

/// A class after its '[': what it holds, before the negation of the whole.
struct RegexClass {
  CodePointSet set;
  bool negated;
};
Result<RegexClass> parse_class(RegexReader& in, int depth);

}  // namespace moestro::tok
