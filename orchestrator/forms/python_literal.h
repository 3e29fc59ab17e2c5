#pragma once
// Python's literals as JSON: some models are taught to write values so.

#include <optional>
#include <string>
#include <string_view>

namespace moestro::orchestrator {

/// A string, a number, True, False, None, a list, tuple or dict of them, or JSON's own words for them. Nothing if it is
/// anything else, or nested deeper than 64 levels.
std::optional<std::string> python_to_json(std::string_view literal);

/// The beginning of a string as JSON without its closing quote, up to an escape that is cut; empty if it is no string.
std::string begun_python_string(std::string_view text);

/// Finds where an argument's value ends in a call that comes piece by piece: at a ',' or ')' outside of strings and
/// brackets.
class PythonValueEnd {
 public:
  /// Takes a byte; true if it is behind the value.
  bool take(char c);

 private:
  int depth_ = 0;
  char quote_ = 0;
  bool escaped_ = false;
};

}  // namespace moestro::orchestrator
