#pragma once
// The directories that a pack is spread over when it is made.

#include <filesystem>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::store {

/// A directory of a pack and its share of the bytes, in proportion to the speed of its drive.
struct PackDirectory {
  std::filesystem::path path;
  uint32_t share = 1;  ///< 1 to kShareMax
};
inline constexpr uint32_t kShareMax = 1000000;

/// The shares of an unfinished pack. Written before its first byte, removed with its last.
inline constexpr char kSharesName[] = "unfinished-pack.shares";

/// Makes the directories and PACK's links to them, and decides the shares. If PACK has an unfinished pack that was
/// spread over the same directories, its shares are kept (measuring a drive again gives other numbers, and a pack must
/// continue as it began). `shares[0]` is PACK's own. Refuses directories that contain other files, or that are named
/// twice.
Result<std::vector<uint32_t>> settle_spread(const std::filesystem::path& pack, uint32_t own_share,
                                            const std::vector<PackDirectory>& others);

/// Removes the files of an unfinished pack from one of its directories, only files that a packer makes.
void remove_pack_files(const std::filesystem::path& directory);

}  // namespace moestro::store
