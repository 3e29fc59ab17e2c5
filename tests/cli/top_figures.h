#pragma once
// A store at work, as `moestro top` sees it twice.

#include <string>
#include <vector>

#include "services/cli/top/view.h"

namespace moestro::cli {

inline constexpr uint64_t kMiB = 1 << 20;

StoreLook busy();
StoreLook two_seconds_later();

/// The lines' texts of the page without a server.
std::vector<std::string> page_of(const StoreLook& before, const StoreLook& now, const TerminalSize& size);

}  // namespace moestro::cli
