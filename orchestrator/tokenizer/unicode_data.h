#pragma once
// The tables that scripts/make_unicode.py writes, as it writes them; unicode_properties.h reads them.

#include <cstddef>
#include <iterator>

namespace moestro::tok {

/// Names in lower case without spaces, '-' and '_': those of one value with '|' between, values with ',' between.
/// The runs are pairs of a value (0: none of those named) and a length.
struct PartitionData {
  const char* names;
  const char* runs;
};
struct NamedSetData {
  const char* names;
  const char* runs;
};

extern const PartitionData kCategories, kScripts, kBlocks;
extern const NamedSetData kBinarySets[];
extern const size_t kBinarySetCount;

/// Groups of code points that (?i) takes for each other: size, first (from the last group's first), steps.
extern const char* const kCaseFolds;
/// Code points that (?i) takes for two or three others: itself, how many, those.
extern const char* const kLongFolds;

extern const char* const kNumericSet;         ///< of Digits
extern const char* const kPunctuationSet;     ///< of Punctuation and BertPreTokenizer
extern const char* const kWhitespaceWordSet;  ///< \w of Whitespace and of added tokens with single_word
extern const char* const kControlSet;         ///< what BertNormalizer's clean_text drops
extern const char* const kNonspacingMarkSet;  ///< what BertNormalizer's strip_accents drops
extern const char* const kAccentSet;          ///< what StripAccents drops
extern const char* const
    kNotNormalizedSet;                   ///< what newer versions of Unicode normalize and NFC and the like leave alone
extern const char* const kLowerCases;    ///< runs: distance, length, zigzag of the step to the lower case
extern const char* const kScriptGroups;  ///< a partition: the scripts of UnicodeScripts; 0 goes with any
extern const char* const kGraphemeClasses;  ///< a partition: GraphemeClass of graphemes.cc

}  // namespace moestro::tok
