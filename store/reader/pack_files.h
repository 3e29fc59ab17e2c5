#pragma once
// The data files of packs, open for reading.

#include <filesystem>
#include <string>
#include <vector>

#include "common/shm/mapped_file.h"
#include "common/status.h"
#include "store/pack/manifest.h"
#include "store/reader/blob_loader.h"

namespace moestro::store {

class PackFiles {
 public:
  /// Opens the files of one more pack; returns the index of its first one. O_DIRECT, or, where the file system refuses that,
  /// through the page cache (buffered() then names the file). Shards on other drives are kUnsupported.
  Result<uint32_t> add(const std::filesystem::path& pack, const Manifest& manifest);

  std::vector<int> fds() const;
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& buffered() const { return buffered_; }

 private:
  std::vector<shm::UniqueFd> files_;
  std::vector<std::string> names_, buffered_;
};

/// The slices of a blob, with file indices counted from `first_file`.
std::vector<LoadSlice> load_slices(const Blob& blob, uint32_t first_file);

}  // namespace moestro::store
