#include "common/shm/mapped_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <utility>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace moestro::shm {
namespace {

/// The unit in which this file system gives memory: sizes and mappings of hugetlbfs files are multiples of it.
uint64_t page_of(int fd) {
  struct statfs fs {};
  if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC) return static_cast<uint64_t>(fs.f_bsize);
  return 4096;
}

Result<std::byte*> map_fd(int fd, uint64_t bytes, bool writable, const std::filesystem::path& name) {
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* at = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return io_error("cannot map " + name.string(), errno);
  return static_cast<std::byte*>(at);
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<MappedFile> MappedFile::create(const std::filesystem::path& path, uint64_t bytes, mode_t mode) {
  ::unlink(path.c_str());  // a process that still maps the old file keeps the old file
  MappedFile file;
  file.fd_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.fd_) return io_error("cannot create " + path.string(), errno);
  const uint64_t page = page_of(file.fd());
  file.size_ = (bytes + page - 1) / page * page;
  if (ftruncate(file.fd(), static_cast<off_t>(file.size_)) != 0)
    return io_error("cannot give " + path.string() + " a size of " + std::to_string(file.size_), errno);
  fchmod(file.fd(), mode);  // not what the umask leaves of it
  MOESTRO_ASSIGN_OR_RETURN(file.data_, map_fd(file.fd(), file.size_, true, path));
  file.writable_ = true;
  return file;
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path, Access access, uint64_t bytes_min) {
  const bool writable = access == Access::kReadWrite;
  UniqueFd fd(::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno == ENOENT) return not_found(path.string() + " does not exist");
  if (!fd) return io_error("cannot open " + path.string(), errno);
  return of_descriptor(std::move(fd), access, bytes_min, path.string());
}

Result<MappedFile> MappedFile::of_descriptor(UniqueFd fd, Access access, uint64_t bytes_min, const std::string& name) {
  MappedFile file;
  file.fd_ = std::move(fd);
  struct stat info {};
  if (fstat(file.fd(), &info) != 0) return io_error("cannot stat " + name, errno);
  file.size_ = static_cast<uint64_t>(info.st_size);
  if (file.size_ < bytes_min || file.size_ == 0)
    return corrupt(name + " has " + std::to_string(file.size_) + " bytes, at least " + std::to_string(bytes_min) +
                   " are needed");
  file.writable_ = access == Access::kReadWrite;
  MOESTRO_ASSIGN_OR_RETURN(file.data_, map_fd(file.fd(), file.size_, file.writable_, name));
  return file;
}

Result<MappedFile> MappedFile::anonymous(const char* label, uint64_t bytes, mode_t mode) {
  MappedFile file;
  file.fd_.reset(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.fd_) return io_error("cannot make memory without a name (memfd)", errno);
  file.size_ = (bytes + 4095) / 4096 * 4096;
  if (ftruncate(file.fd(), static_cast<off_t>(file.size_)) != 0)
    return exhausted("cannot give memory without a name a size of " + std::to_string(file.size_));
  fchmod(file.fd(), mode);
  MOESTRO_ASSIGN_OR_RETURN(file.data_, map_fd(file.fd(), file.size_, true, label));
  file.writable_ = true;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      writable_(std::exchange(other.writable_, false)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    fd_ = std::move(other.fd_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    writable_ = std::exchange(other.writable_, false);
  }
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() {
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
}

void touch_pages(std::span<std::byte> memory) {
  for (uint64_t at = 0; at < memory.size(); at += 4096)
    std::atomic_ref(reinterpret_cast<unsigned char&>(memory[at])).fetch_or(0, std::memory_order_relaxed);
}

Status MappedFile::back(uint64_t offset, uint64_t length) {
  // Populating the mapping, not fallocate: only so does MADV_HUGEPAGE decide the size of the pages, and a full file
  // system is an errno here instead of a SIGBUS at the first touch.
  while (madvise(data_ + offset, length, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL)
      return exhausted("no memory for " + std::to_string(length) + " bytes at " + std::to_string(offset));
    // A kernel before 5.14: allocate, which reports ENOSPC, then touch.
    if (fallocate(fd(), 0, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0)
      return exhausted("no memory for " + std::to_string(length) + " bytes at " + std::to_string(offset));
    touch_pages({data_ + offset, length});
    break;
  }
  return Status::ok();
}

uint64_t MappedFile::page_bytes() const {
  return page_of(fd());
}

Status MappedFile::seal() {
  if (fcntl(fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return io_error("cannot seal memory without a name", errno);
  (void)fcntl(fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  (void)fcntl(fd(), F_ADD_SEALS, F_SEAL_SEAL);
  return Status::ok();
}

Status MappedFile::forbid_writes() {
  if (!writable_) return Status::ok();
  // The descriptor could be mapped for writing once more, so it is exchanged for one that cannot.
  UniqueFd read_only(::open(("/proc/self/fd/" + std::to_string(fd())).c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only) return io_error("cannot open a mapping's file for reading alone", errno);
  if (mprotect(data_, size_, PROT_READ) != 0) return io_error("cannot protect a mapping from writes", errno);
  fd_ = std::move(read_only);
  writable_ = false;
  return Status::ok();
}

bool MappedFile::size_is_sealed() const {
  const int seals = fcntl(fd(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

void MappedFile::prefer_huge_pages() { madvise(data_, size_, MADV_HUGEPAGE); }

uint64_t MappedFile::huge_bytes() const {
  struct statfs fs {};
  if (fstatfs(fd(), &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC) return size_;
  std::ifstream smaps("/proc/self/smaps");
  char start[32];
  std::snprintf(start, sizeof start, "%lx-", reinterpret_cast<unsigned long>(data_));
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(start)) inside = true;
    unsigned long kib = 0;
    if (inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %lu", &kib) == 1) return kib * 1024;
    if (inside && line.starts_with("VmFlags")) return 0;
  }
  return 0;
}

}  // namespace moestro::shm
