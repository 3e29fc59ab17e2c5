#pragma once
// Exit codes that tell the supervisor whether a restart may help.

#include "common/status.h"

namespace moestro {

constexpr int kExitMayMend = 1;     ///< a peer that is away, memory that is short now, a drive that failed to read
constexpr int kExitCannotMend =
    2;  ///< the command line, the configuration, the pack, the port: another start ends the same way

/// 0 for OK.
int exit_code_of(const Status& end);

}  // namespace moestro
