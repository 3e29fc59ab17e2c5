#pragma once
// UTF-8 and the character classes that tokenizer.json files speak of.

#include <cstddef>
#include <string>
#include <string_view>

namespace moestro::tok {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// The position of the first byte that is not valid UTF-8, or npos.
size_t find_invalid_utf8(std::string_view bytes);

/// How many bytes at the end begin a character that more bytes could complete; 0 to 3.
size_t unfinished_utf8_bytes(std::string_view bytes);
/// The characters that begin in `text`, which may end, but not begin, inside one.
size_t count_code_points(std::string_view text);

struct CodePoint {
  char32_t value;
  size_t bytes;
};
/// The character at `pos` of valid UTF-8.
CodePoint code_point_at(std::string_view text, size_t pos);
void append_utf8(std::string& out, char32_t c);

bool is_space(char32_t c);        ///< White_Space
bool is_numeric(char32_t c);      ///< general category N*
bool is_punctuation(char32_t c);  ///< ASCII punctuation or general category P*
bool is_word(char32_t c);         ///< what \w matches: letters, marks, digits, connectors

/// Appends the lower-case form.
void append_lower(std::string& out, char32_t c);
bool is_nonspacing_mark(char32_t c);  ///< general category Mn

/// The bytes that two pieces share at their seam: turns bytes arriving in any portions into valid UTF-8, one
/// U+FFFD for each maximal part of a broken character (as Rust's from_utf8_lossy and the WHATWG decoder do).
class LossyUtf8 {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

 private:
  bool continues(unsigned char byte) const;
  char pending_[4] = {};
  size_t pending_size_ = 0;
  size_t wanted_ = 0;
};

std::string lossy_utf8(std::string_view bytes);

}  // namespace moestro::tok
