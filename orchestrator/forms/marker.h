#pragma once
// Markers in text that comes piece by piece.

#include <algorithm>
#include <string_view>

namespace moestro::orchestrator {

inline bool is_json_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

inline std::string_view trimmed(std::string_view text) {
  const auto begin = std::find_if_not(text.begin(), text.end(), is_json_white);
  const auto end = std::find_if_not(text.rbegin(), std::reverse_iterator(begin), is_json_white).base();
  return {begin, end};
}

/// How many bytes of the end of `text` begin `marker`, which is not empty and not whole there.
inline size_t begun_marker(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n)
    if (text.ends_with(marker.substr(0, n))) return n;
  return 0;
}

/// Whether `text` begins with `word`; not certain if it may yet.
enum class Begins { kYes, kNo, kNotCertain };
inline Begins begins(std::string_view text, std::string_view word) {
  if (text.starts_with(word)) return Begins::kYes;
  return word.starts_with(text) ? Begins::kNotCertain : Begins::kNo;
}

}  // namespace moestro::orchestrator
