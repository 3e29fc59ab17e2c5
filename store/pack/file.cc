#include "store/pack/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/may_read.h"

namespace moestro::store {
namespace {
constexpr size_t kChunkBytes = size_t{1} << 30;  // one read(2) moves at most 2 GiB

File::Version version_of(const struct stat& st) {
  return {static_cast<uint64_t>(st.st_size), {st.st_mtim.tv_sec, st.st_mtim.tv_nsec},
          {st.st_ctim.tv_sec, st.st_ctim.tv_nsec}};
}

}

Result<File> File::open(const std::filesystem::path& path, int flags) {
  // O_NONBLOCK: a FIFO in place of a file is refused below instead of waited for.
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT) return not_found(path.string() + ": no such file");
    if (error == EACCES && flags == O_RDONLY) MOESTRO_RETURN_IF_ERROR(check_may_read(path));
    return io_error(path.string() + ": cannot be opened", error);
  }
  File file(fd, path.string());
  struct stat st{};
  if (fstat(fd, &st) != 0) return io_error(path.string(), errno);
  if (!S_ISREG(st.st_mode)) return invalid_argument(path.string() + ": not a regular file");
  file.opened_ = version_of(st);
  return file;
}

Result<File> File::open_for_reading(const std::filesystem::path& path) { return open(path, O_RDONLY); }
Result<File> File::open_for_writing(const std::filesystem::path& path) { return open(path, O_RDWR | O_CREAT); }

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), opened_(other.opened_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(opened_, other.opened_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<uint64_t> File::size() const {
  struct stat st{};
  if (fstat(fd_, &st) != 0) return io_error(path_, errno);
  return static_cast<uint64_t>(st.st_size);
}

Result<File::Since> File::since_opened() const {
  struct stat st{};
  if (fstat(fd_, &st) != 0) return io_error(path_, errno);
  const Version now = version_of(st);
  if (now.size != opened_.size || now.written != opened_.written) return Since::kWritten;
  return now.inode == opened_.inode ? Since::kNothing : Since::kTouched;
}

Status File::read_at(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), std::min(out.size(), kChunkBytes), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path_ + ": read at byte " + std::to_string(offset), errno);
    if (n == 0)
      return corrupt(path_ + ": ends at byte " + std::to_string(offset) + ", before it should; it is truncated");
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Status::ok();
}

Status File::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), std::min(bytes.size(), kChunkBytes), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path_ + ": write", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return Status::ok();
}

void File::start_writing_back(uint64_t offset, uint64_t size) const {
  (void)sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE);
}

Status File::reserve(uint64_t size) const {
  MOESTRO_RETURN_IF_ERROR(truncate(size));
  if (size == 0) return Status::ok();
  int result = 0;
  do result = fallocate(fd_, 0, 0, static_cast<off_t>(size));
  while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return Status::ok();
  if (errno == ENOSPC)
    return exhausted(path_ + ": no room for " + std::to_string(size) + " bytes; free disk space or pack elsewhere");
  return io_error(path_ + ": reserve " + std::to_string(size) + " bytes", errno);
}

Status File::truncate(uint64_t size) const {
  return ftruncate(fd_, static_cast<off_t>(size)) == 0 ? Status::ok() : io_error(path_ + ": resize", errno);
}

Status File::sync() const { return fsync(fd_) == 0 ? Status::ok() : io_error(path_ + ": sync", errno); }

Result<bool> File::try_lock() const {
  int result = 0;
  do result = flock(fd_, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return io_error(path_ + ": cannot be locked", errno);
}

bool File::has_a_name() const {
  struct stat st{};
  return fstat(fd_, &st) == 0 && st.st_nlink > 0;
}

Status check_is_no_lfs_pointer(const File& file) {
  constexpr std::string_view kBegin = "version https://git-lfs.github.com/spec/";
  constexpr uint64_t kBytesMax = 1024;  // as its specification says
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t size, file.size());
  if (size < kBegin.size() || size > kBytesMax) return Status::ok();
  std::string begin(kBegin.size(), '\0');
  MOESTRO_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(begin))));
  if (begin != kBegin) return Status::ok();
  return invalid_argument(file.path() + ": is a Git LFS pointer and not the file itself; run `git lfs pull` in its "
                                        "directory");
}

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t bytes_max) {
  MOESTRO_ASSIGN_OR_RETURN(const File file, File::open_for_reading(path));
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t size, file.size());
  if (size > bytes_max) return invalid_argument(path.string() + ": above " + std::to_string(bytes_max) + " bytes");
  MOESTRO_RETURN_IF_ERROR(check_is_no_lfs_pointer(file));
  std::string text(size, '\0');
  MOESTRO_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::optional<std::string>> read_text_file_if_any(const std::filesystem::path& path, uint64_t bytes_max) {
  auto text = read_text_file(path, bytes_max);
  if (!text && text.status().code() == Code::kNotFound) return std::optional<std::string>();
  if (!text) return text.status();
  return std::optional<std::string>(std::move(*text));
}

Status write_file_durably(const std::filesystem::path& dir, const std::string& name, std::span<const std::byte> bytes) {
  const std::filesystem::path temporary = dir / (name + ".tmp");
  {
    MOESTRO_ASSIGN_OR_RETURN(const File file, File::open_for_writing(temporary));
    MOESTRO_RETURN_IF_ERROR(file.truncate(0));
    MOESTRO_RETURN_IF_ERROR(file.write_at(0, bytes));
    MOESTRO_RETURN_IF_ERROR(file.sync());
  }
  if (::rename(temporary.c_str(), (dir / name).c_str()) != 0)
    return io_error((dir / name).string() + ": rename", errno);
  return sync_directory(dir);
}

Status sync_directory(const std::filesystem::path& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error(dir.string(), errno);
  const int result = fsync(fd);
  const int error = errno;
  ::close(fd);
  return result == 0 ? Status::ok() : io_error(dir.string() + ": sync", error);
}

}  // namespace moestro::store
