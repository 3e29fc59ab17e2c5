#pragma once
// Stores that run here, and what they say of their arenas' pages.

#include <filesystem>
#include <optional>
#include <vector>

#include "services/cli/doctor/findings.h"

namespace moestro::cli {

/// Run directories of the caller's own stores, where `up` makes them by itself under `roots`: ROOT/moestro-UID/NAME,
/// ROOT/moestro/NAME.
std::vector<std::filesystem::path> find_stores(const std::vector<std::filesystem::path>& roots);

/// Asks the store with this run directory; nothing if none answers.
std::optional<Finding> ask_store(const std::filesystem::path& run_dir);

/// Of all stores found under `roots`, and of those with the run directories `asked`: one of these that does not answer
/// is missing.
std::vector<Finding> judge_stores(const std::vector<std::filesystem::path>& roots,
                                  const std::vector<std::filesystem::path>& asked);

}  // namespace moestro::cli
