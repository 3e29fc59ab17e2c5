#include "store/pack/shards.h"

#include <map>

namespace moestro::store {

namespace fs = std::filesystem;

fs::path shard_path(const fs::path& pack, uint32_t directory) {
  return directory == 0 ? pack : pack / ("shard-" + std::to_string(directory));
}

std::vector<uint32_t> file_directories(const Manifest& manifest) {
  std::vector<uint32_t> directories(manifest.files.size());
  for (const Blob& blob : manifest.blobs)
    for (const Slice& slice : blob.slices) directories[slice.file] = slice.directory;
  return directories;
}

std::vector<fs::path> data_files(const fs::path& pack, const Manifest& manifest) {
  std::vector<fs::path> paths;
  const std::vector<uint32_t> directories = file_directories(manifest);
  for (size_t i = 0; i < manifest.files.size(); ++i)
    paths.push_back(shard_path(pack, directories[i]) / manifest.files[i]);
  return paths;
}

std::vector<ShardUse> shard_use(const fs::path& pack, const Manifest& manifest) {
  std::map<uint32_t, uint64_t> bytes;
  for (const Blob& blob : manifest.blobs)
    for (const Slice& slice : blob.slices) bytes[slice.directory] += slice.length;
  std::vector<ShardUse> shards;
  for (const auto& [directory, sum] : bytes) {
    std::error_code error;
    const fs::path link = shard_path(pack, directory), target = fs::read_symlink(link, error);
    shards.push_back({directory, error ? link : target, sum});
  }
  return shards;
}

Status check_shards(const fs::path& pack, const Manifest& manifest) {
  for (const ShardUse& shard : shard_use(pack, manifest)) {
    std::error_code error;
    const fs::path link = shard_path(pack, shard.directory);
    if (fs::is_directory(link, error)) continue;
    return not_found(
        pack.string() + ": " + std::to_string(shard.bytes) + " bytes of it lie in " + shard.leads_to.string() +
        ", which is not there: mount that drive, or say where it is now with ln -sfn DIRECTORY " + link.string());
  }
  return Status::ok();
}

}  // namespace moestro::store
