#pragma once
// A directory for an arena: on the tmpfs of /dev/shm where there is one. Only there can read buffers be registered.
//
// Its test holds a lock on it. One whose lock is free was left by a test that was killed, by ctest's timeout say: the
// next test removes it. tests/integration/memory_directory.py does the same with directories of the same name.

#include <fcntl.h>
#include <sys/file.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/shm/mapped_file.h"

namespace moestro::testing {

class MemoryDirectory {
 public:
  explicit MemoryDirectory(const std::filesystem::path& otherwise) : path_(otherwise) {
    remove_left_ones();
    while (!in_memory_) {
      std::string name = kShm + std::string(kPrefix) + "XXXXXX";
      if (::mkdtemp(name.data()) == nullptr) return;
      lock_ = open(name);
      (void)::flock(lock_.get(), LOCK_EX);
      std::error_code error;
      in_memory_ = std::filesystem::exists(name, error);  // else it was taken for a left one before it was locked
      if (in_memory_) path_ = name;
    }
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
  static constexpr const char* kShm = "/dev/shm/";
  static constexpr const char* kPrefix = "moestro-test-arena-";

  static shm::UniqueFd open(const std::filesystem::path& directory) {
    return shm::UniqueFd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  static void remove_left_ones() {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(kShm, error)) {
      if (!entry.path().filename().string().starts_with(kPrefix)) continue;
      const shm::UniqueFd lock = open(entry.path());
      if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(entry.path(), error);
    }
  }

  std::filesystem::path path_;
  bool in_memory_ = false;
  shm::UniqueFd lock_;
};

}  // namespace moestro::testing
