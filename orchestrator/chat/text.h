#pragma once
// Text operations with Python's meaning: strings are sequences of characters, stored here as UTF-8.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::jinja {

size_t character_count(std::string_view text);
/// Byte offsets of all characters, and the size at the end.
std::vector<size_t> character_offsets(std::string_view text);
char32_t code_point_at(std::string_view text, size_t pos, size_t* bytes);
void append_utf8(std::string& out, char32_t c);
/// Invalid bytes become U+FFFD.
std::string sanitize_utf8(std::string_view text);

bool is_space(char32_t c);
bool is_word(char32_t c);       ///< \w
bool is_printable(char32_t c);  ///< Python's str.isprintable()
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
/// Strips any of the characters of `set`.
std::string_view strip_set(std::string_view text, std::string_view set, bool left, bool right);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);

enum class CharClass { kAlpha, kDigit, kAlnum, kSpace, kUpper, kLower };
/// Python's str.isalpha() and its siblings.
bool all_of_class(std::string_view text, CharClass c);

/// str.splitlines(): at every kind of line end.
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
/// Padded to `width` characters; `fill` is one character. kCenter is that of formats, kMethodCenter that of str.center,
/// which puts the odd character to the left where the width is odd.
enum class Align { kLeft, kRight, kCenter, kMethodCenter };
std::string justify(std::string_view text, int64_t width, std::string_view fill, Align align);
/// markupsafe.escape
std::string escape_html(std::string_view text);

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t count);

}  // namespace moestro::jinja
