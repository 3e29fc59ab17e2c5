#pragma once
// The tables that scripts/make_characters.py writes; characters.h reads them. Runs are in order and do not overlap.

#include <cstdint>
#include <span>

namespace moestro::jinja {

/// first, first + stride, ... up to last
struct CharacterRun {
  char32_t first, last;
  uint32_t stride;
};
/// Characters that become the one `step` further.
struct CaseRun {
  CharacterRun run;
  int32_t step;
};
/// A character that becomes two or three; a zero follows two.
struct LongCase {
  char32_t from;
  char32_t to[3];
};
struct CaseMapping {
  std::span<const CaseRun> runs;
  std::span<const LongCase> longer;
};

extern const CaseMapping kToUpper, kToLower, kToTitle;
extern const std::span<const CharacterRun> kUpperCase, kLowerCase, kTitleCase, kCaseIgnorable, kDigits;

}  // namespace moestro::jinja
