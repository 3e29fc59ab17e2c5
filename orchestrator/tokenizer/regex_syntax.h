#pragma once
// Reads the regexes of tokenizer.json, which are written for Oniguruma, with the meaning that Oniguruma gives them.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "orchestrator/tokenizer/code_point_set.h"

namespace moestro::tok {

/// A regex as PCRE2 syntax with sets of code points in between, where every character and class was.
struct RegexParts {
  struct Part {
    std::string syntax;  ///< where `set` is -1
    int set = -1;        ///< an index of `sets`
  };
  std::vector<Part> parts;
  std::vector<CodePointSet> sets;  ///< no two of them equal
};

/// Errors: kInvalidArgument for what Oniguruma refuses too, kUnsupported for syntax that is not translated.
Result<RegexParts> parse_regex(std::string_view pattern);

}  // namespace moestro::tok
