#pragma once
// How wide text is on a terminal. Of any bytes: what cannot be shown is replaced first, by visible().

#include <string>
#include <string_view>

namespace moestro::cli {

/// One line of valid UTF-8 without anything that steers a terminal or turns the direction of writing: control
/// characters of ASCII as `one_line` shows them, all else of that kind, and bytes that are no UTF-8, as U+FFFD.
std::string visible(std::string_view bytes);

// The others take what visible() returns, or text of this program's own.

/// In columns: 2 for a wide character, 0 for one that joins the one before.
size_t display_width(std::string_view text);
/// The longest beginning of `text` that is at most `columns` wide.
std::string_view fitting(std::string_view text, size_t columns);
/// "a-long-na..cut.bf16": at most `columns` wide, visible.
std::string shortened(std::string_view bytes, size_t columns);
/// Spaces behind, up to `columns`.
std::string padded(std::string text, size_t columns);

}  // namespace moestro::cli
