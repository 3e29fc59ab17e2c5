#pragma once
// Whether SQLite's journal (PATH-wal) is whole. SQLite reads it up to the first frame whose checksum is wrong and drops
// what follows, without a word: right for what a power failure has cut off, and a loss of what was acknowledged where
// a drive has changed a byte in the middle.

#include <filesystem>

#include "common/status.h"

namespace moestro::orchestrator {

/// kCorrupt, with what to do: frames were written, and synced, behind one that is damaged. A tail that is torn, and no
/// journal at all, are fine. To be called before SQLite opens the database.
Status check_wal(const std::filesystem::path& database);

}  // namespace moestro::orchestrator
