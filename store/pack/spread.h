#pragma once
// The directories that a pack is spread over, while it is made.

#include <filesystem>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::store {

/// A directory of a pack and its part of the bytes: in proportion to what its drive reads.
struct PackDirectory {
  std::filesystem::path path;
  uint32_t share = 1;  ///< 1 to kShareMax
};
inline constexpr uint32_t kShareMax = 1000000;

/// What an unfinished pack was spread over; written before its first byte, gone with its last.
inline constexpr char kSharesName[] = "unfinished-pack.shares";

/// Makes the directories and PACK's links to them, and settles the shares: those of the unfinished pack in PACK, if it
/// was spread over the same directories (a drive measured anew gives other numbers, and a pack must go on as it began).
/// `shares[0]` is PACK's own. Refuses directories that hold anything of someone else's, or that are named twice.
Result<std::vector<uint32_t>> settle_spread(const std::filesystem::path& pack, uint32_t own_share,
                                            const std::vector<PackDirectory>& others);

/// Removes what an unfinished pack leaves in one of its directories: only files that a packer itself makes.
void remove_pack_files(const std::filesystem::path& directory);

}  // namespace moestro::store
