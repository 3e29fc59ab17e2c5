#include "store/server/warm_set.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "common/shm/whole_file.h"
#include "store/arena/text_file.h"

namespace moestro::store {
namespace {

constexpr std::string_view kFirstLine = "moestro-warm-set 1";
constexpr size_t kBytesMax = 64 << 20;
constexpr double kHeatMax = 1e12;

std::optional<double> heat_of(std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !(value >= 0)) return std::nullopt;
  return std::min(value, kHeatMax);
}

/// Few digits: a heat is an estimate.
std::string text_of(double heat) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), std::clamp(heat, 0.0, kHeatMax),
                                          std::chars_format::general, 4);
  return error == std::errc() ? std::string(text.data(), end) : "0";
}

}  // namespace

std::string serialise_warm_set(const WarmSet& set) {
  std::string text = std::string(kFirstLine) + "\n";
  for (const uint64_t identity : set.packs) text += "pack " + hex(identity) + "\n";
  for (const WarmSet::Item& item : set.items)
    text += std::to_string(item.pack) + " " + std::to_string(item.blob) + " " + text_of(item.heat) + "\n";
  return with_checksum(std::move(text));
}

Result<WarmSet> parse_warm_set(std::string_view text) {
  MOESTRO_ASSIGN_OR_RETURN(const auto lines, checked_lines(text));
  if (lines.empty() || lines[0] != kFirstLine) return unsupported("it is of another version of this program");
  WarmSet set;
  for (size_t i = 1; i < lines.size(); ++i) {
    std::string_view line = lines[i];
    const std::string_view word = next_word(line);
    if (word == "pack" && set.items.empty()) {
      const auto identity = number<uint64_t>(line, 16);
      if (!identity) return corrupt("it has a line that names no pack");
      set.packs.push_back(*identity);
      continue;
    }
    const auto pack = number<uint32_t>(word), blob = number<uint32_t>(next_word(line));
    const auto heat = heat_of(line);
    if (!pack || !blob || !heat || *pack >= set.packs.size()) return corrupt("it has a line that names no blob");
    set.items.push_back({*pack, *blob, *heat});
  }
  return set;
}

Status write_warm_set(const std::filesystem::path& path, const WarmSet& set) {
  return shm::write_whole_file(path, serialise_warm_set(set));
}

Result<WarmSet> read_warm_set(const std::filesystem::path& path) {
  MOESTRO_ASSIGN_OR_RETURN(const std::string text, read_lines_file(path, kBytesMax));
  auto set = parse_warm_set(text);
  if (!set) return set.status().with_context(path.string());
  return set;
}

}  // namespace moestro::store
