#pragma once
// Tells files that this user may not read from files that are not there.

#include <filesystem>

#include "common/status.h"

namespace moestro {

/// kInvalidArgument if permissions keep this user from opening `path` for reading: names what is closed, and the
/// command that opens it. OK otherwise, also if nothing is there. `tree`: the directory that `path` is in, if all of it
/// is needed.
Status check_may_read(const std::filesystem::path& path, const std::filesystem::path& tree = {});

}  // namespace moestro
