#pragma once
// Properties of code points as Oniguruma has them in Hugging Face's tokenizers: by name, and case folds.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "orchestrator/tokenizer/code_point_set.h"

namespace moestro::tok {

/// Reads the numbers of unicode_data.h.
class NumberReader {
 public:
  explicit NumberReader(const char* text) : at_(text) {}
  bool done() const { return *at_ == '\0'; }
  uint32_t next();

 private:
  const char* at_;
};

/// A set of unicode_data.h.
CodePointSet decode_set(const char* runs);
/// The runs of a partition: the value of every code point.
std::vector<uint8_t> read_partition(const char* runs);

/// What \p{name} matches: a general category, a script, a block ("InBasicLatin") or a binary property. Case, spaces,
/// '-' and '_' of the name do not matter.
std::optional<CodePointSet> property(std::string_view name);
/// What [[:name:]] matches.
std::optional<CodePointSet> posix_bracket(std::string_view name);
/// What \w matches outside of brackets; inside it is posix_bracket("word"), which lacks a few characters.
const CodePointSet& bare_word();

/// `c` and what it equals in a match that ignores case.
CodePointSet case_variants(char32_t c);
/// Adds the case variants of every member.
void close_over_case(CodePointSet& set);

/// A code point that equals two or three others where case is ignored: ß and "ss".
struct LongFold {
  char32_t from;
  std::vector<char32_t> to;
};
std::span<const LongFold> long_folds();
/// Whether `text` equals `fold.to` where case is ignored.
bool equals_fold(std::span<const char32_t> text, const LongFold& fold);

}  // namespace moestro::tok
