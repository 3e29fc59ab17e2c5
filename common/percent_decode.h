#pragma once
// %XX in addresses and queries (RFC 3986).

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

/// The text with its escapes resolved; nothing if one is wrong. `plus_is_space`: of a query's value, as forms write it.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);

}  // namespace moestro
