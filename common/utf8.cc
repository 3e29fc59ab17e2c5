#include "common/utf8.h"

namespace moestro {
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

bool is_continuation_byte(char byte) {
  return is_continuation(static_cast<unsigned char>(byte));
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

}  // namespace moestro
