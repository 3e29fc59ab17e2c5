#pragma once
// A whole file, mapped shared. Move-only; the destructor unmaps and closes it.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "common/status.h"

namespace moestro::shm {

/// A descriptor that closes itself.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// Touches every page of `memory` with a write that changes nothing, so that it is backed. Others may be using the
/// memory.
void touch_pages(std::span<std::byte> memory);

class MappedFile {
 public:
  enum class Access : uint8_t { kReadOnly, kReadWrite };

  /// Makes a new file of `bytes` zeros (replacing one of that name) with `mode`, and maps it for reading and writing.
  /// The pages are not backed yet: see back(). Sizes are rounded up to the page of the file system (2 MiB on
  /// hugetlbfs).
  static Result<MappedFile> create(const std::filesystem::path& path, uint64_t bytes, mode_t mode);
  /// Maps an existing file of at least `bytes_min`. A shorter one is kCorrupt, a missing one kNotFound.
  static Result<MappedFile> open(const std::filesystem::path& path, Access access, uint64_t bytes_min);
  /// Memory without a name in any file system (a memfd), of `bytes` zeros; `label` shows in /proc. It is freed with its
  /// last descriptor and mapping.
  static Result<MappedFile> anonymous(const char* label, uint64_t bytes, mode_t mode);
  /// Maps the file of `fd`, as open() does; `name` is for errors.
  static Result<MappedFile> of_descriptor(UniqueFd fd, Access access, uint64_t bytes_min, const std::string& name);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Backs [offset, offset + length) with memory now, so that no later access can fail with SIGBUS. kExhausted if there
  /// is not enough.
  Status back(uint64_t offset, uint64_t length);
  /// For memory without a name: from now on no process can shorten or extend it, and only processes that have it mapped
  /// now can write it (with Linux 5.1 or later). No further seal can be added.
  Status seal();
  /// From now on a write to this mapping faults, and its descriptor cannot write. What a driver has pinned stays
  /// pinned.
  Status forbid_writes();
  bool writable() const { return writable_; }
  /// Whether no process can shorten it, so that reading it cannot end in SIGBUS.
  bool size_is_sealed() const;
  /// Asks for huge pages; huge_bytes() shows whether they were given.
  void prefer_huge_pages();
  /// Bytes of this mapping that huge pages back, as the kernel reports them (0 if it does not say).
  uint64_t huge_bytes() const;
  /// The size of a page of this file: 4096, or the huge page of a hugetlbfs.
  uint64_t page_bytes() const;

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void unmap();
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  bool writable_ = false;
};

}  // namespace moestro::shm
