#pragma once
// A directory for an arena: on the tmpfs of /dev/shm where there is one. Only there can read buffers be registered.

#include <cstdlib>
#include <filesystem>

namespace moestro::testing {

class MemoryDirectory {
 public:
  explicit MemoryDirectory(const std::filesystem::path& otherwise) : path_(otherwise) {
    char name[] = "/dev/shm/moestro-test-XXXXXX";
    in_memory_ = ::mkdtemp(name) != nullptr;
    if (in_memory_) path_ = name;
  }
  ~MemoryDirectory() {
    if (!in_memory_) return;  // a directory of whoever named it
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  bool in_memory() const { return in_memory_; }

 private:
  std::filesystem::path path_;
  bool in_memory_ = false;
};

}  // namespace moestro::testing
