#pragma once
// The tables of a state file, version by version: PRAGMA user_version is the number of steps that were done.

#include <cstdint>

#include "orchestrator/state/database.h"

namespace moestro::orchestrator {

/// The version that this program writes.
int64_t sqlite_version();
/// Does the missing steps for a file of `version` (0: an empty file), each in one transaction.
Status migrate(Database& database, int64_t version);

}  // namespace moestro::orchestrator
