#pragma once
// %XX in addresses and queries (RFC 3986).

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

/// The text with its escapes resolved; nullopt if one is wrong. `plus_is_space`: '+' means a space, as in query values
/// that forms send.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);

}  // namespace moestro
