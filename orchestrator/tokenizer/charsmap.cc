#include "orchestrator/tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include "common/utf8.h"
#include "orchestrator/tokenizer/graphemes.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr size_t kClusterBytesMax = 5;
constexpr uint32_t kLeaf = uint32_t{1} << 31;

bool ends_key(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label_of(uint32_t unit) { return unit & (kLeaf | 0xFF); }
size_t offset_of(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1U << 9)) >> 6); }

int digit_of(char c) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t at = kDigits.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

Result<std::string> decoded(std::string_view text) {
  const Status bad = invalid_argument("'precompiled_charsmap' is not base64");
  if (text.size() % 4 != 0) return bad;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t group = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = i >= text.size() - padding ? 0 : digit_of(text[i]);
    if (digit < 0) return bad;
    group = group << 6 | static_cast<uint32_t>(digit);
    for (int shift = 16; i % 4 == 3 && shift >= 0; shift -= 8) bytes += static_cast<char>(group >> shift & 0xFF);
  }
  bytes.erase(bytes.size() - std::min(padding, bytes.size()));
  return bytes;
}

}  // namespace

Result<Charsmap> Charsmap::from_base64(std::string_view text) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string bytes, decoded(text));
  constexpr size_t kUnit = sizeof(uint32_t);
  uint32_t trie_bytes = 0;
  if (bytes.size() >= kUnit) std::memcpy(&trie_bytes, bytes.data(), kUnit);
  if (trie_bytes == 0 || trie_bytes % kUnit != 0 || trie_bytes > bytes.size() - kUnit)
    return invalid_argument("'precompiled_charsmap' is cut off or damaged");
  Charsmap map;
  map.units_.resize(trie_bytes / kUnit);
  std::memcpy(map.units_.data(), bytes.data() + kUnit, trie_bytes);
  map.texts_ = bytes.substr(kUnit + trie_bytes);
  if (find_invalid_utf8(map.texts_) != std::string_view::npos)
    return invalid_argument("'precompiled_charsmap' has replacements that are not UTF-8");
  return map;
}

std::optional<std::string_view> Charsmap::text_at(uint32_t begin) const {
  if (begin > texts_.size() || (begin < texts_.size() && is_continuation_byte(texts_[begin]))) return std::nullopt;
  const std::string_view rest = std::string_view(texts_).substr(begin);
  return rest.substr(0, rest.find('\0'));
}

std::optional<std::string_view> Charsmap::replacement(std::string_view text) const {
  size_t at = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) return std::nullopt;
    const uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (!ends_key(unit)) continue;
    return at < units_.size() ? text_at(units_[at] & ~kLeaf) : std::nullopt;
  }
  return std::nullopt;
}

std::string Charsmap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = grapheme_end(text, at);
    const auto whole = end - at <= kClusterBytesMax ? replacement(text.substr(at, end - at)) : std::nullopt;
    if (whole) {
      out += *whole;
      at = end;
    }
    while (at < end) {
      const std::string_view one = text.substr(at, code_point_at(text, at).bytes);
      out += replacement(one).value_or(one);
      at += one.size();
    }
  }
  return out;
}

}  // namespace moestro::tok
