#pragma once
// Checks that SQLite's journal (PATH-wal) is undamaged. SQLite reads it up to the first frame with a wrong checksum and
// silently drops the rest. That is right after a power failure. But if a drive has changed a byte in the middle,
// acknowledged data would be lost.

#include <filesystem>

#include "common/status.h"

namespace moestro::orchestrator {

/// kCorrupt, with what to do: frames were written and synced after a damaged one. A torn tail, or no journal, is OK.
/// Call it before SQLite opens the database.
Status check_wal(const std::filesystem::path& database);

}  // namespace moestro::orchestrator
