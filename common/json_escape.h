#pragma once
// Text inside the quotes of a JSON string, for the files that are written line by line while a step runs.

#include <string>
#include <string_view>

namespace moestro {

/// Quotes and backslashes escaped, control characters left out.
std::string json_escaped(std::string_view text);

}  // namespace moestro
