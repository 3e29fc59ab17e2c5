#pragma once
// A pack whose data files are in several directories, each on its own drive. Directory 0 is the pack itself; directory
// N is the target of the link PACK/shard-N. So a drive that is mounted elsewhere only needs a new link.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "store/pack/manifest.h"

namespace moestro::store {

inline constexpr uint32_t kDirectoriesMax = 64;

/// PACK, or PACK/shard-N.
std::filesystem::path shard_path(const std::filesystem::path& pack, uint32_t directory);
/// The directory of each file of the manifest. check_manifest ensures that it is in only one.
std::vector<uint32_t> file_directories(const Manifest& manifest);
/// The paths of its data files, in the manifest's order.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& pack, const Manifest& manifest);
/// The directories that contain any of them, with the targets of the links.
struct ShardUse {
  uint32_t directory = 0;
  std::filesystem::path leads_to;
  uint64_t bytes = 0;
};
std::vector<ShardUse> shard_use(const std::filesystem::path& pack, const Manifest& manifest);
/// kNotFound, naming the directory and what to do, if one of them does not exist.
Status check_shards(const std::filesystem::path& pack, const Manifest& manifest);

}  // namespace moestro::store
