#pragma once
// Sets of code points, and code points in UTF-8 text.

#include <optional>
#include <string_view>
#include <vector>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

/// Ranges of code points.
using CharacterSet = std::vector<CodePoints>;

/// The same set, sorted and disjoint.
CharacterSet normal(CharacterSet set);
/// All code points that are not in the set; sorted and disjoint.
CharacterSet complement(const CharacterSet& set);

/// The code point at `at`, which moves past it. Nothing, and `at` stays: the bytes there are not UTF-8.
std::optional<uint32_t> take_code_point(std::string_view text, size_t& at);

}  // namespace moestro::grammar
