#pragma once
// Running stores, and their reports about their arenas' pages.

#include <filesystem>
#include <vector>

#include "services/cli/doctor/findings.h"

namespace moestro::cli {

/// Run directories of the caller's own stores, where `up` makes them by itself under `roots`: ROOT/moestro-UID/NAME,
/// ROOT/moestro/NAME. Without those of `known`, however they are written.
std::vector<std::filesystem::path> find_stores(const std::vector<std::filesystem::path>& roots,
                                               const std::vector<std::filesystem::path>& known = {});

/// Findings for all stores under `roots`, and for those with the run directories `asked`. One of `asked` that does not
/// answer is `missing`.
std::vector<Finding> judge_stores(const std::vector<std::filesystem::path>& roots,
                                  const std::vector<std::filesystem::path>& asked);

}  // namespace moestro::cli
