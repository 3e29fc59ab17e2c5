#include "orchestrator/tokenizer/graphemes.h"

#include "orchestrator/tokenizer/unicode.h"
#include "orchestrator/tokenizer/unicode_data.h"
#include "orchestrator/tokenizer/unicode_properties.h"

namespace moestro::tok {
namespace {

constexpr char32_t kJoiner = 0x200D;

/// Those of unicode_data.h first, as scripts/python/unicode_probe.py numbers them.
enum class GraphemeClass : uint8_t {
  kOther,
  kControl,       ///< a cluster by itself
  kSpacingMark,   ///< goes with what is before it
  kExtend,        ///< so does this, and an emoji may still follow another one
  kBetween,       ///< and a consonant another one
  kLinker,        ///< links two consonants
  kPrepend,       ///< goes with what follows
  kEmoji,
  kConsonant,
  // Found by arithmetic:
  kLeading,       ///< Hangul: an initial consonant
  kVowel,         ///< a vowel, or a syllable without a final consonant
  kTrailing,      ///< a final consonant, or a syllable with one
  kRegional,      ///< one half of a flag
};
using Class = GraphemeClass;

bool is_between(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

bool is_syllable(char32_t c) { return is_between(c, 0xAC00, 0xD7A3); }
bool has_final(char32_t syllable) { return (syllable - 0xAC00) % 28 != 0; }

Class class_of(char32_t c) {
  static const std::vector<uint8_t> kClasses = read_partition(kGraphemeClasses);
  if (is_syllable(c)) return has_final(c) ? Class::kTrailing : Class::kVowel;
  if (is_between(c, 0x1100, 0x115F) || is_between(c, 0xA960, 0xA97C)) return Class::kLeading;
  if (is_between(c, 0x1160, 0x11A7) || is_between(c, 0xD7B0, 0xD7C6)) return Class::kVowel;
  if (c == 0x16D63 || is_between(c, 0x16D67, 0x16D6A)) return Class::kVowel;  // of Kirat Rai
  if (is_between(c, 0x11A8, 0x11FF) || is_between(c, 0xD7CB, 0xD7FB)) return Class::kTrailing;
  if (is_between(c, 0x1F1E6, 0x1F1FF)) return Class::kRegional;
  return static_cast<Class>(kClasses[c]);
}

bool joins_before(Class c) { return c >= Class::kSpacingMark && c <= Class::kLinker; }
bool extends(Class c) { return c >= Class::kExtend && c <= Class::kLinker; }

/// What decides whether a cluster goes on.
struct Cluster {
  Class last = Class::kOther;
  char32_t last_char = 0;
  bool emoji = false;       ///< an emoji, and only what extends it since, a joiner at the end
  bool consonant = false;   ///< a consonant, and only what may be between it and another since
  bool linked = false;      ///< and a linker among that
  bool odd_half = false;    ///< an odd number of halves of flags

  void add(char32_t c, Class of) {
    emoji = of == Class::kEmoji || (emoji && extends(of) && last_char != kJoiner);
    const bool stays = of == Class::kBetween || of == Class::kLinker;
    linked = consonant && stays && (linked || of == Class::kLinker);
    consonant = of == Class::kConsonant || (consonant && stays);
    odd_half = of == Class::kRegional && !odd_half;
    last = of, last_char = c;
  }

  bool goes_on(char32_t c, Class next) const {
    if (last_char == U'\r' && c == U'\n') return true;
    if (last == Class::kControl || next == Class::kControl) return false;
    if (joins_before(next) || last == Class::kPrepend) return true;
    switch (next) {
      case Class::kEmoji: return emoji && last_char == kJoiner;
      case Class::kConsonant: return consonant && linked;
      case Class::kRegional: return odd_half;
      case Class::kLeading: return last == Class::kLeading;
      case Class::kVowel: return last == Class::kLeading || (!is_syllable(c) && last == Class::kVowel);
      case Class::kTrailing:
        return is_syllable(c) ? last == Class::kLeading : last == Class::kVowel || last == Class::kTrailing;
      default: return false;
    }
  }
};

}  // namespace

size_t grapheme_end(std::string_view text, size_t begin) {
  Cluster cluster;
  size_t at = begin;
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    const Class next = class_of(c.value);
    if (at > begin && !cluster.goes_on(c.value, next)) break;
    cluster.add(c.value, next);
    at += c.bytes;
  }
  return at;
}

}  // namespace moestro::tok
