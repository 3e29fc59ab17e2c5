#pragma once
// Pieces of JSON text.

#include <string>
#include <string_view>

namespace moestro::orchestrator {

/// A JSON string, with its quotes.
std::string quoted_json(std::string_view text);
/// The inside of a JSON string; characters may be cut at any byte.
std::string escaped_json(std::string_view text);

/// Finds the end of a JSON object or list that comes piece by piece.
class JsonEnd {
 public:
  /// Takes a byte; true if it is the last one.
  bool take(char c);
  bool begun() const { return depth_ > 0; }

 private:
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace moestro::orchestrator
