#pragma once
// The Unicode regexes of tokenizer.json, written for Oniguruma, run by PCRE2 under limits.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::tok {

struct Match {
  size_t begin;
  size_t end;
};

class Regex {
 public:
  /// Errors: kInvalidArgument for a pattern that does not compile, kUnsupported for Oniguruma syntax without
  /// an equivalent.
  static Result<Regex> compile(std::string_view pattern);

  /// Appends all matches in `text` (valid UTF-8), left to right, not overlapping. Errors: kExhausted at the
  /// match limit.
  Status find_all(std::string_view text, std::vector<Match>& out) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string pattern_;
};

}  // namespace moestro::tok
