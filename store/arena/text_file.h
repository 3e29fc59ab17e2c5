#pragma once
// Small text files of the arena directory: lines of words, the last one a checksum of all before it; written by
// shm::write_whole_file.

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::store {

/// `lines` and the line "checksum X" after them.
std::string with_checksum(std::string lines);
/// The lines before the checksum. kCorrupt if it does not match, or there is none.
Result<std::vector<std::string_view>> checked_lines(std::string_view text);

/// Removes the next word from a line and returns it; empty at the end.
std::string_view next_word(std::string_view& line);
/// A whole word as a number; none if it is not one, or does not fit.
template <typename T>
std::optional<T> number(std::string_view word, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (error != std::errc() || end != word.data() + word.size() || word.empty()) return std::nullopt;
  return value;
}
std::string hex(uint64_t value);

/// kNotFound if there is none, kCorrupt if it is longer than `bytes_max`.
Result<std::string> read_lines_file(const std::filesystem::path& path, size_t bytes_max);

}  // namespace moestro::store
