#pragma once
// What Python's str methods know of a character, from generated tables (Unicode 15.1), the same on every machine.

#include <string>

namespace moestro::jinja {

bool is_upper(char32_t c);  ///< str.isupper() of it alone, and so on
bool is_lower(char32_t c);
bool is_title(char32_t c);           ///< one character of two letters, as U+01C5
bool is_cased(char32_t c);           ///< any of these
bool is_case_ignorable(char32_t c);  ///< apostrophes, marks and the like, which do not end a word
bool is_digit(char32_t c);           ///< decimal digits, superscripts and the like

// The UTF-8 of what it becomes: up to three characters.
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);  ///< but for a capital sigma at the end of a word
void append_title(std::string& out, char32_t c);

}  // namespace moestro::jinja
