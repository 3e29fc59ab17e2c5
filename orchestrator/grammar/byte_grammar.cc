#include "orchestrator/grammar/byte_grammar.h"

#include <algorithm>
#include <array>

namespace moestro::grammar {

namespace {
/// The i-th byte of a code point's UTF-8 form of `bytes` bytes.
uint8_t utf8_byte(uint32_t code_point, int bytes, int i) {
  constexpr std::array<uint8_t, 5> kLead{0, 0, 0xC0, 0xE0, 0xF0};
  const uint32_t bits = code_point >> (6 * (bytes - 1 - i));
  if (i > 0) return static_cast<uint8_t>(0x80 | (bits & 0x3F));
  return static_cast<uint8_t>(kLead[static_cast<size_t>(bytes)] | bits);
}
}  // namespace

NodeId ByteGrammar::literal(NodeId from, std::string_view text) {
  for (const char c : text) {
    const NodeId to = add();
    byte(from, to, static_cast<uint8_t>(c), static_cast<uint8_t>(c));
    from = to;
  }
  return from;
}

void ByteGrammar::code_points(NodeId from, NodeId to, CodePoints range) {
  constexpr std::array<uint32_t, 5> kLast{0, 0x7F, 0x7FF, 0xFFFF, kCodePointMax};
  for (int bytes = 1; bytes <= 4; ++bytes) {
    const uint32_t low = std::max(range.first, bytes == 1 ? 0 : kLast[static_cast<size_t>(bytes - 1)] + 1);
    const uint32_t high = std::min(range.second, kLast[static_cast<size_t>(bytes)]);
    if (low > high) continue;
    if (bytes != 3) {
      encoded(from, to, {low, high}, bytes);
      continue;
    }
    if (low < 0xD800) encoded(from, to, {low, std::min(high, 0xD7FFu)}, bytes);
    if (high > 0xDFFF) encoded(from, to, {std::max(low, 0xE000u), high}, bytes);
  }
}

/// Splits the range until each part is a product of ranges of bytes.
void ByteGrammar::encoded(NodeId from, NodeId to, CodePoints range, int bytes) {
  const auto [low, high] = range;
  for (int i = 1; i < bytes; ++i) {
    const uint32_t tail = (1u << (6 * i)) - 1;
    if ((low & ~tail) == (high & ~tail)) continue;
    if ((low & tail) != 0) {
      encoded(from, to, {low, low | tail}, bytes);
      return encoded(from, to, {(low | tail) + 1, high}, bytes);
    }
    if ((high & tail) != tail) {
      encoded(from, to, {low, (high & ~tail) - 1}, bytes);
      return encoded(from, to, {high & ~tail, high}, bytes);
    }
  }
  for (int i = 0; i < bytes; ++i) {
    const NodeId next = i + 1 == bytes ? to : add();
    byte(from, next, utf8_byte(low, bytes, i), utf8_byte(high, bytes, i));
    from = next;
  }
}

}  // namespace moestro::grammar
