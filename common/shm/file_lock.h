#pragma once
// A lock on a whole file. The kernel releases it when the last descriptor of the holder is closed, however the holder
// ends. It works across containers that share the file system, where process ids have no meaning.

#include <filesystem>
#include <optional>

#include "common/shm/mapped_file.h"
#include "common/status.h"

namespace moestro::shm {

class FileLock {
 public:
  /// Opens `path` (made with `mode` if `create`) without locking it.
  static Result<FileLock> open(const std::filesystem::path& path, bool create, mode_t mode = 0660);

  /// True if the exclusive lock is now ours. Never waits.
  Result<bool> try_lock();
  void unlock();
  /// True while another holder has the exclusive lock. The check takes no lock, so it disturbs no process that wants
  /// it.
  Result<bool> held_elsewhere();
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace moestro::shm
