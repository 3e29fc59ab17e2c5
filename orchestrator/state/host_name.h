#pragma once
// The name of this process for others that share its state: machine, process id, and a random number.

#include <filesystem>
#include <string>

#include "common/shm/file_lock.h"
#include "common/status.h"

namespace moestro::orchestrator {

class HostName {
 public:
  /// Takes over the name of a process of this directory and machine that has died, which a lock shows that the kernel
  /// lets go of. What that process had is then this one's, and nobody waits for its lease. Otherwise a new name.
  static Result<HostName> take(const std::filesystem::path& run_dir);
  const std::string& text() const { return text_; }

 private:
  HostName(shm::FileLock lock, std::string text) : lock_(std::move(lock)), text_(std::move(text)) {}
  shm::FileLock lock_;
  std::string text_;
};

}  // namespace moestro::orchestrator
