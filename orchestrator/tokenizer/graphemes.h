#pragma once
// Text as its readers see characters: extended grapheme clusters (Unicode Annex 29) as Precompiled cuts it.

#include <cstddef>
#include <string_view>

namespace moestro::tok {

/// Where the cluster ends that begins at `begin` of valid UTF-8.
size_t grapheme_end(std::string_view text, size_t begin);

}  // namespace moestro::tok
