#pragma once
// The files that `moestro batch results` writes. Each appears complete, by renaming FILE.part.

#include <filesystem>

#include "common/status.h"

namespace moestro::cli {

/// Whether both name one entry of one directory, by whatever path.
bool same_target(const std::filesystem::path& a, const std::filesystem::path& b);
/// Whether `target` could be written now. Leaves nothing.
Status check_target(const std::filesystem::path& target);
Status write_empty_target(const std::filesystem::path& target);
std::filesystem::path part_of_target(const std::filesystem::path& target);
/// The finished part becomes the target.
Status finish_target(const std::filesystem::path& target);

}  // namespace moestro::cli
