#pragma once
// Markers in text that comes piece by piece.

#include <algorithm>
#include <string_view>

namespace moestro::orchestrator {

inline bool is_json_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// How many bytes of the end of `text` begin `marker`, which is not empty and not whole there.
inline size_t begun_marker(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n)
    if (text.ends_with(marker.substr(0, n))) return n;
  return 0;
}

}  // namespace moestro::orchestrator
