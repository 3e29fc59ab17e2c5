#pragma once
// The page that `moestro top` draws.

#include <string>
#include <vector>

#include "services/cli/top/expert_map.h"
#include "services/cli/top/frame.h"
#include "services/cli/top/rates.h"

namespace moestro::cli {

/// Below the lines of the server: what the store does, the map of experts in the rows that are left, and the store's
/// tables. No line is wider than the terminal and none too many: names lose their middle, figures go on in the next
/// line, and where the terminal is too low, the last line says how many are missing.
std::vector<Line> top_page(const std::vector<Line>& server, const ExpertMap& experts, const StoreLook& now,
                           const StoreRates& rates, const TerminalSize& size);

/// "83 %" of 0.83; "-" of what is negative.
std::string percent(double share);

}  // namespace moestro::cli
