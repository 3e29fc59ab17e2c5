#include "orchestrator/tokenizer/byte_level.h"

#include <array>

#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

// Bytes that are printable in Latin-1 spell themselves; the others, in order, take the characters from U+0100
// on.
struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int16_t, 0x144> of_char{};  // -1: spells nothing
  Alphabet() {
    of_char.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      of_byte[b] = printable ? static_cast<char32_t>(b) : next++;
      of_char[of_byte[b]] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char b : bytes) {
    const char32_t c = alphabet().of_byte[static_cast<unsigned char>(b)];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {  // at most U+0143: two bytes
      out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
}

std::string bytes_of_byte_level(std::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const CodePoint c = code_point_at(token, i);
    const int16_t byte = c.value < alphabet().of_char.size() ? alphabet().of_char[c.value] : int16_t{-1};
    if (byte < 0) return std::string(token);
    bytes += static_cast<char>(byte);
    i += c.bytes;
  }
  return bytes;
}

}  // namespace moestro::tok
