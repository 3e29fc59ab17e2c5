#include "orchestrator/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "orchestrator/tokenizer/code_point_set.h"
#include "orchestrator/tokenizer/unicode_data.h"
#include "orchestrator/tokenizer/unicode_properties.h"

namespace moestro::tok {
namespace {

/// Code points whose lower-case forms lie `step` from them.
struct LowerRun {
  char32_t first, last;
  int32_t step;
};

std::vector<LowerRun> read_lower_runs() {
  std::vector<LowerRun> runs;
  char32_t first = 0;
  for (NumberReader numbers(kLowerCases); !numbers.done();) {
    first += numbers.next();
    const char32_t last = first + numbers.next() - 1;
    const uint32_t zigzag = numbers.next();
    const auto half = static_cast<int32_t>(zigzag / 2);
    runs.push_back({first, last, zigzag % 2 == 0 ? half : -half - 1});
  }
  return runs;
}

}  // namespace

void append_utf8(std::string& out, char32_t c) {
  utf8proc_uint8_t buffer[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  static const CodePointBitmap kMap(decode_set(kNumericSet));
  return kMap.contains(c);
}

bool is_punctuation(char32_t c) {
  static const CodePointBitmap kMap(decode_set(kPunctuationSet));
  return kMap.contains(c);
}

bool is_word(char32_t c) {
  static const CodePointBitmap kMap(decode_set(kWhitespaceWordSet));
  return kMap.contains(c);
}

bool is_control(char32_t c) {
  static const CodePointBitmap kMap(decode_set(kControlSet));
  return kMap.contains(c);
}

bool is_nonspacing_mark(char32_t c) {
  static const CodePointBitmap kMap(decode_set(kNonspacingMarkSet));
  return kMap.contains(c);
}

bool is_accent(char32_t c) {
  static const CodePointBitmap kMap(decode_set(kAccentSet));
  return kMap.contains(c);
}

bool is_never_normalized(char32_t c) {
  if (c < 0x500) return false;  // the most frequent ones, without a look-up
  static const CodePointBitmap kMap(decode_set(kNotNormalizedSet));
  return kMap.contains(c);
}

uint8_t script_group(char32_t c) {
  static const std::vector<uint8_t> kGroups = read_partition(kScriptGroups);
  return kGroups[c];
}

void append_lower(std::string& out, char32_t c) {
  static const std::vector<LowerRun> kRuns = read_lower_runs();
  if (c == 0x130) {  // I with a dot above: the one character whose lower case has two
    out += "i\xCC\x87";
    return;
  }
  const auto run =
      std::lower_bound(kRuns.begin(), kRuns.end(), c, [](const LowerRun& r, char32_t v) { return r.last < v; });
  const bool changes = run != kRuns.end() && run->first <= c;
  append_utf8(out, changes ? static_cast<char32_t>(static_cast<int32_t>(c) + run->step) : c);
}

}  // namespace moestro::tok
