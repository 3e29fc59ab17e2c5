#pragma once
// Which bytes are UTF-8, and text of those that are not.

#include <cstddef>
#include <string>
#include <string_view>

namespace moestro {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// The position of the first byte that is not valid UTF-8, or npos.
size_t find_invalid_utf8(std::string_view bytes);

/// The number of bytes at the end that begin a character which more bytes could complete; 0 to 3.
size_t unfinished_utf8_bytes(std::string_view bytes);
/// The characters that begin in `text`, which may end, but not begin, inside one.
size_t count_code_points(std::string_view text);
bool is_continuation_byte(char byte);

/// Converts bytes that arrive in pieces of any size into valid UTF-8, with one U+FFFD for each maximal part of a broken
/// character (like Rust's from_utf8_lossy and the WHATWG decoder).
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

}  // namespace moestro
