#pragma once
// Small files that exist completely or not at all: they are written as PATH.part, then renamed. A file system may fill
// up between two writes, so room can be reserved: an existing PATH.part is overwritten in place.

#include <sys/types.h>

#include <filesystem>
#include <string_view>

#include "common/status.h"

namespace moestro::shm {

/// Replaces `path`, with this mode. kIo: it is unchanged.
Status write_whole_file(const std::filesystem::path& path, std::string_view text, mode_t mode = 0600);

/// Makes PATH.part with this many bytes, so that the next write of up to a page needs no more room.
Status reserve_whole_file(const std::filesystem::path& path, size_t bytes);

/// Removes the file but keeps its room for the next write. Does nothing if there is no file.
void put_aside(const std::filesystem::path& path);

}  // namespace moestro::shm
