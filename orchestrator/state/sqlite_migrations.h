#pragma once
// The tables of a state file, version by version: PRAGMA user_version is how many of the steps were done.

#include <cstdint>

#include "orchestrator/state/database.h"

namespace moestro::orchestrator {

/// The version that this program writes.
int64_t sqlite_version();
/// Does the steps that a file of `version` lacks (0: an empty one), each in one transaction.
Status migrate(Database& database, int64_t version);

}  // namespace moestro::orchestrator
