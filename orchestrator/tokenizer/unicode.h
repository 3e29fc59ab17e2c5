#pragma once
// The character classes of tokenizer.json files, and the characters of UTF-8.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moestro::tok {

struct CodePoint {
  char32_t value;
  size_t bytes;
};
/// The character at `pos` of valid UTF-8.
inline CodePoint code_point_at(std::string_view text, size_t pos) {
  const auto byte = [&](size_t k) { return static_cast<char32_t>(static_cast<unsigned char>(text[pos + k])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F), 3};
  return {((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F), 4};
}
void append_utf8(std::string& out, char32_t c);

// Each with the Unicode version of the part of Hugging Face's tokenizers that uses it, because these versions differ.
bool is_space(char32_t c);             ///< White_Space
bool is_numeric(char32_t c);           ///< Digits: general category N*
bool is_punctuation(char32_t c);       ///< Punctuation, BertPreTokenizer: ASCII punctuation or general category P*
bool is_word(char32_t c);              ///< \w of Whitespace and of added tokens: letters, marks, digits, connectors
bool is_control(char32_t c);           ///< characters that BertNormalizer removes
bool is_nonspacing_mark(char32_t c);   ///< what BertNormalizer takes for an accent: general category Mn
bool is_accent(char32_t c);            ///< what StripAccents takes for one: general category M*
bool is_never_normalized(char32_t c);  ///< what NFC and the like leave alone, whatever newer versions of Unicode say

/// The script as UnicodeScripts sees it, Japanese as one with Chinese; 0 goes with any.
uint8_t script_group(char32_t c);

/// Appends the lower-case form.
void append_lower(std::string& out, char32_t c);

}  // namespace moestro::tok
