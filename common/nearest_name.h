#pragma once
// "Did you mean": the known name that a mistyped one is closest to.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moestro {

/// The name among `names` with the fewest edits from `typed`: a character added, missing, wrong, or swapped with its
/// neighbour. None if the closest needs more than three edits or more than a third of the characters. Only the first
/// 64 bytes of `typed` count.
std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names);

}  // namespace moestro
