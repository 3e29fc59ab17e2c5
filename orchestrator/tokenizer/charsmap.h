#pragma once
// The replacements of SentencePiece's normalizers ("Precompiled"), which a tokenizer.json has as a trie in base64.
//
//   size of the trie in bytes (32 bits, little-endian)
//   units of 32 bits: a double-array trie, indexed by position ^ offset ^ byte
//   replacements, each ended by a byte 0
//
// A unit: bits 0-7 the label (bit 31: no label, but where a replacement begins), bit 8 whether a key ends here, bits
// 10-30 the offset to the children, in steps of 256 if bit 9 is set.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::tok {

class Charsmap {
 public:
  static Result<Charsmap> from_base64(std::string_view text);

  /// Replaces clusters of less than 6 bytes whose beginning is a key, with all that follows in them; else character by
  /// character. SentencePiece takes the longest key instead. Hugging Face's tokenizers do this, and models were trained
  /// and are used with them.
  std::string apply(std::string_view text) const;

 private:
  /// Of the shortest key that `text` begins with.
  std::optional<std::string_view> replacement(std::string_view text) const;
  std::optional<std::string_view> text_at(uint32_t begin) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace moestro::tok
