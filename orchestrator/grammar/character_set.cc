#include "orchestrator/grammar/character_set.h"

#include <algorithm>
#include <array>

namespace moestro::grammar {

CharacterSet normal(CharacterSet set) {
  std::sort(set.begin(), set.end());
  CharacterSet out;
  for (const auto& [low, high] : set) {
    if (!out.empty() && low <= out.back().second + 1)
      out.back().second = std::max(out.back().second, high);
    else
      out.emplace_back(low, high);
  }
  return out;
}

CharacterSet complement(const CharacterSet& set) {
  CharacterSet out;
  uint32_t next = 0;
  for (const auto& [low, high] : normal(set)) {
    if (low > next) out.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kCodePointMax) out.emplace_back(next, kCodePointMax);
  return out;
}

std::optional<uint32_t> take_code_point(std::string_view text, size_t& at) {
  constexpr std::array<uint32_t, 4> kLeast{0, 0x80, 0x800, 0x10000};  // by bytes that follow the first
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return ++at, lead;
  const size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at <= more) return std::nullopt;
  uint32_t point = lead & (0x3Fu >> more);
  for (size_t i = 1; i <= more; ++i) {
    const auto byte = static_cast<uint8_t>(text[at + i]);
    if ((byte & 0xC0) != 0x80) return std::nullopt;
    point = point << 6 | (byte & 0x3F);
  }
  if (point < kLeast[more] || point > kCodePointMax || (point >= 0xD800 && point <= 0xDFFF)) return std::nullopt;
  at += more + 1;
  return point;
}

}  // namespace moestro::grammar
