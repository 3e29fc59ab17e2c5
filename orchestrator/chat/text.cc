#include "orchestrator/chat/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "orchestrator/chat/characters.h"

namespace moestro::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

template <typename Fn>
void for_each_character(std::string_view text, Fn fn) {
  for (size_t i = 0; i < text.size();) {
    size_t n = 1;
    const char32_t c = code_point_at(text, i, &n);
    fn(c, i);
    i += n;
  }
}

size_t last_character(std::string_view text) {
  size_t i = text.size() - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

// The nearest characters on either side that are not ignored decide: letters end in front of it, and none follows.
bool ends_a_word(std::string_view before, std::string_view after) {
  size_t n = 1;
  for (; !after.empty(); after.remove_prefix(n)) {
    const char32_t c = code_point_at(after, 0, &n);
    if (is_case_ignorable(c)) continue;
    if (is_cased(c)) return false;
    break;
  }
  while (!before.empty()) {
    const size_t last = last_character(before);
    const char32_t c = code_point_at(before, last, &n);
    if (!is_case_ignorable(c)) return is_cased(c);
    before.remove_suffix(before.size() - last);
  }
  return false;
}

// The character at `pos` of `text`.
void append_lower_at(std::string& out, std::string_view text, size_t pos) {
  constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2;
  size_t n = 1;
  const char32_t c = code_point_at(text, pos, &n);
  if (c == kSigma && ends_a_word(text.substr(0, pos), text.substr(pos + n)))
    append_utf8(out, kFinalSigma);
  else
    append_lower(out, c);
}

}  // namespace

char32_t code_point_at(std::string_view text, size_t pos, size_t* bytes) {
  const auto lead = static_cast<unsigned char>(text[pos]);
  if (lead < 0x80) return *bytes = 1, lead;
  utf8proc_int32_t c = 0;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + pos),
                                  static_cast<utf8proc_ssize_t>(text.size() - pos), &c);
  if (n <= 0) return *bytes = 1, 0xFFFD;
  *bytes = static_cast<size_t>(n);
  return static_cast<char32_t>(c);
}

void append_utf8(std::string& out, char32_t c) {
  utf8proc_uint8_t buffer[4];
  if (!utf8proc_codepoint_valid(static_cast<utf8proc_int32_t>(c))) c = 0xFFFD;
  out.append(reinterpret_cast<const char*>(buffer),
             static_cast<size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer)));
}

std::string sanitize_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t c, size_t) { append_utf8(out, c); });
  return out;
}

size_t character_count(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::vector<size_t> character_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  const auto k = category(c);
  return c == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) || k == UTF8PROC_CATEGORY_ND ||
         k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    size_t n = 1;
    if (!is_space(code_point_at(text, 0, &n))) break;
    text.remove_prefix(n);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const size_t last = last_character(text);
    size_t n = 1;
    if (!is_space(code_point_at(text, last, &n))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string_view strip_set(std::string_view text, std::string_view set, bool left, bool right) {
  const auto in_set = [&](std::string_view character) { return set.find(character) != std::string_view::npos; };
  while (left && !text.empty()) {
    size_t n = 1;
    code_point_at(text, 0, &n);
    if (!in_set(text.substr(0, n))) break;
    text.remove_prefix(n);
  }
  while (right && !text.empty()) {
    const size_t last = last_character(text);
    if (!in_set(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string upper(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, size_t) { append_upper(out, c); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t, size_t pos) { append_lower_at(out, text, pos); });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each_character(text, [&](char32_t c, size_t pos) {
    if (inside)
      append_lower_at(out, text, pos);
    else
      append_title(out, c);
    inside = is_cased(c);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, size_t pos) {
    if (pos == 0)
      append_title(out, c);
    else
      append_lower_at(out, text, pos);
  });
  return out;
}

bool all_of_class(std::string_view text, CharClass wanted) {
  bool all = !text.empty(), cased = false;
  for_each_character(text, [&](char32_t c, size_t) {
    const auto k = category(c);
    const bool alpha = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
    const bool number = k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
    switch (wanted) {
      case CharClass::kAlpha:
        all = all && alpha;
        break;
      case CharClass::kDigit:
        all = all && is_digit(c);
        break;
      case CharClass::kAlnum:
        all = all && (alpha || number);
        break;
      case CharClass::kSpace:
        all = all && is_space(c);
        break;
      case CharClass::kUpper:
        all = all && !is_lower(c) && !is_title(c);
        cased = cased || is_upper(c);
        break;
      case CharClass::kLower:
        all = all && !is_upper(c) && !is_title(c);
        cased = cased || is_lower(c);
        break;
    }
  });
  if (wanted == CharClass::kUpper || wanted == CharClass::kLower) return all && cased;
  return all;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin, next = text.size();
    for (size_t n = 1; end < text.size(); end += n) {
      const char32_t c = code_point_at(text, end, &n);
      if ((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029) {
        next = end + n + (c == '\r' && end + 1 < text.size() && text[end + 1] == '\n' ? 1 : 0);
        break;
      }
    }
    lines.emplace_back(text.substr(begin, (keep_ends ? next : end) - begin));
    begin = next;
  }
  return lines;
}

std::string justify(std::string_view text, int64_t width, std::string_view fill, Align align) {
  const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(character_count(text)), 0);
  int64_t left = 0;
  if (align == Align::kRight) left = missing;
  if (align == Align::kCenter) left = missing / 2;
  if (align == Align::kMethodCenter) left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  size_t done = 0;
  if (from.empty()) {  // Python puts `to` around every character
    for (size_t i = 0; i <= text.size() && count != 0; --count) {
      out += to;
      size_t n = 1;
      if (i < text.size()) code_point_at(text, i, &n);
      out += text.substr(i, n);
      i += n;
      done = std::min(i, text.size());
    }
    return out += text.substr(done);
  }
  for (size_t at = text.find(from); at != std::string_view::npos && count != 0; at = text.find(from, done), --count) {
    out += text.substr(done, at - done);
    out += to;
    done = at + from.size();
  }
  return out += text.substr(done);
}

}  // namespace moestro::jinja
