#include "orchestrator/tokenizer/unicode.h"

#include <utf8proc.h>

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

CodePoint code_point_at(std::string_view text, size_t pos) {
  const auto byte = [&](size_t k) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[pos + k]));
  };
  const size_t length = announced_length(static_cast<unsigned char>(text[pos]));
  switch (length) {
    case 2:
      return {((byte(0) & 0x1F) << 6) | (byte(1) & 0x3F), 2};
    case 3:
      return {((byte(0) & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F), 3};
    case 4:
      return {
          ((byte(0) & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F),
          4};
    default:
      return {byte(0), 1};
  }
}

void append_utf8(std::string& out, char32_t c) {
  utf8proc_uint8_t buffer[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(n));
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ND) return true;  // L*, M*, Nd
  return category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D ||
         (c >= 0x24B6 && c <= 0x24E9);  // the circled letters: alphabetic symbols
}

void append_lower(std::string& out, char32_t c) {
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  if (c == 0x130) append_utf8(out, 0x307);  // I with a dot above: the one character whose lower case has two
}

bool is_nonspacing_mark(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN;
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
