#pragma once
// A pack whose data files lie in several directories, on drives of their own. Directory 0 is the pack itself; directory
// N is where the link PACK/shard-N leads, so that a drive that is mounted elsewhere needs a new link and nothing else.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "store/pack/manifest.h"

namespace moestro::store {

inline constexpr uint32_t kDirectoriesMax = 64;

/// PACK, or PACK/shard-N.
std::filesystem::path shard_path(const std::filesystem::path& pack, uint32_t directory);
/// Where each file of the manifest lies; it lies in one directory, check_manifest sees to that.
std::vector<uint32_t> file_directories(const Manifest& manifest);
/// Its data files, in the manifest's order, by the names that reach them.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& pack, const Manifest& manifest);
/// The directories that hold any of them, with what the links say.
struct ShardUse {
  uint32_t directory = 0;
  std::filesystem::path leads_to;
  uint64_t bytes = 0;
};
std::vector<ShardUse> shard_use(const std::filesystem::path& pack, const Manifest& manifest);
/// kNotFound, naming the directory and what to do, if one of them is not there.
Status check_shards(const std::filesystem::path& pack, const Manifest& manifest);

}  // namespace moestro::store
