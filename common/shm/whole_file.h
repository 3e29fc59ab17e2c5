#pragma once
// Small files that are there whole or not at all: written as PATH.part, then renamed. A file system may fill up between
// two writings, so room can be kept: a PATH.part that is there is written over in its place.

#include <sys/types.h>

#include <filesystem>
#include <string_view>

#include "common/status.h"

namespace moestro::shm {

/// Replaces `path`, with these rights. kIo: it is as it was before.
Status write_whole_file(const std::filesystem::path& path, std::string_view text, mode_t mode = 0600);

/// Makes PATH.part of so many bytes: the next writing of up to a page needs no more room than that.
Status reserve_whole_file(const std::filesystem::path& path, size_t bytes);

/// The file is not there any more, but its room is kept for the next writing. Nothing, if there is none.
void put_aside(const std::filesystem::path& path);

}  // namespace moestro::shm
