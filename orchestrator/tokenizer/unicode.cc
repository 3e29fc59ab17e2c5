#include "orchestrator/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "orchestrator/tokenizer/code_point_set.h"
#include "orchestrator/tokenizer/unicode_data.h"
#include "orchestrator/tokenizer/unicode_properties.h"

namespace moestro::tok {
namespace {

// The length that a lead byte announces; 0 for bytes that cannot start a character.
size_t announced_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// Whether `byte` may be the second byte after `lead`: no overlong forms, no surrogates, nothing above
// U+10FFFF.
bool second_byte_fits(unsigned char lead, unsigned char byte) {
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return byte >= low && byte <= high;
}

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

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

size_t find_invalid_utf8(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const size_t length = announced_length(lead);
    if (length == 0 || i + length > bytes.size()) return i;
    if (length > 1 && !second_byte_fits(lead, static_cast<unsigned char>(bytes[i + 1]))) return i;
    for (size_t k = 2; k < length; ++k) {
      if (!is_continuation(static_cast<unsigned char>(bytes[i + k]))) return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

size_t unfinished_utf8_bytes(std::string_view bytes) {
  for (size_t n = 1; n <= 3 && n <= bytes.size(); ++n) {
    const std::string_view end = bytes.substr(bytes.size() - n);
    const auto lead = static_cast<unsigned char>(end[0]);
    if (is_continuation(lead)) continue;
    if (announced_length(lead) <= n) return 0;
    return n == 1 || second_byte_fits(lead, static_cast<unsigned char>(end[1])) ? n : 0;
  }
  return 0;
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += !is_continuation(static_cast<unsigned char>(c));
  return n;
}

void append_utf8(std::string& out, char32_t c) {
  utf8proc_uint8_t buffer[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
}

bool is_continuation_byte(char byte) {
  return is_continuation(static_cast<unsigned char>(byte));
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

bool LossyUtf8::continues(unsigned char byte) const {
  if (pending_size_ == 1) return second_byte_fits(static_cast<unsigned char>(pending_[0]), byte);
  return is_continuation(byte);
}

void LossyUtf8::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (pending_size_ > 0 && !continues(byte)) {
      out += kReplacementCharacter;
      pending_size_ = 0;
    }
    if (pending_size_ == 0) {
      wanted_ = announced_length(byte);
      if (wanted_ == 0) {
        out += kReplacementCharacter;
        continue;
      }
    }
    pending_[pending_size_++] = c;
    if (pending_size_ == wanted_) {
      out.append(pending_, pending_size_);
      pending_size_ = 0;
    }
  }
}

void LossyUtf8::finish(std::string& out) {
  if (pending_size_ > 0) out += kReplacementCharacter;
  pending_size_ = 0;
}

std::string lossy_utf8(std::string_view bytes) {
  std::string out;
  LossyUtf8 decoder;
  decoder.push(bytes, out);
  decoder.finish(out);
  return out;
}

}  // namespace moestro::tok
