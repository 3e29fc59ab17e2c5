#pragma once
// GPT-2's spelling of bytes as printable characters: "Ġ" is a space.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moestro::tok {

/// Appends the characters that spell `bytes`.
void append_byte_level(std::string& out, std::string_view bytes);

/// The bytes that `token` spells; its own bytes if some character of it spells none.
std::string bytes_of_byte_level(std::string_view token);

}  // namespace moestro::tok
