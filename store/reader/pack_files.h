#pragma once
// The data files of packs, open for reading.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/shm/mapped_file.h"
#include "common/status.h"
#include "store/pack/manifest.h"
#include "store/reader/load.h"

namespace moestro::store {

class PackFiles {
 public:
  /// Opens the files of one more pack; returns the index of its first one. Uses O_DIRECT, or the page cache if the file
  /// system refuses that (buffered() then names the file). Files on other drives (store/pack/shards.h) are included.
  Result<uint32_t> add(const std::filesystem::path& pack, const Manifest& manifest);

  /// Nothing reads files [first, first + count) any more: closes them and frees their numbers.
  void close(uint32_t first, uint32_t count);

  std::vector<int> fds() const;  ///< by number; -1 for one that is free
  /// The drive of each file. Files of one file system are on one drive, and one thread reads them.
  const std::vector<uint32_t>& drives() const { return drives_; }
  size_t drive_count() const { return devices_.size(); }
  /// A directory on it, for messages.
  std::string drive_path(size_t drive) const { return drive < drive_paths_.size() ? drive_paths_[drive] : ""; }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& buffered() const { return buffered_; }
  /// Whether its file system refuses O_DIRECT.
  bool is_buffered(uint32_t drive) const;

 private:
  /// The first of `count` consecutive free numbers.
  uint32_t free_run(size_t count);
  Status note_drive(uint32_t file, int fd, const std::string& path);

  std::vector<shm::UniqueFd> files_;
  std::vector<uint32_t> drives_;
  std::vector<dev_t> devices_;  ///< by drive
  std::vector<std::string> drive_paths_;
  std::vector<std::string> names_, buffered_;
};

/// The slices of a blob, with file indices counted from `first_file`.
std::vector<LoadSlice> load_slices(const Blob& blob, uint32_t first_file);

}  // namespace moestro::store
