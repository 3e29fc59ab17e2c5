#include "orchestrator/batch/folder_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/log.h"

namespace moestro::orchestrator {
namespace {

namespace fs = std::filesystem;
constexpr size_t kBufferBytes = 256 << 10;

Status write_error(const fs::path& path, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return exhausted("the disk of " + path.parent_path().string() +
                     " is full, or the file may not be as large; free some room there");
  return io_error("writing " + path.string(), error);
}

fs::path part_of(const fs::path& path) { return path.string() + ".part"; }

class FolderPart final : public PartFile {
 public:
  FolderPart(fs::path path, shm::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  ~FolderPart() override { discard(); }
  Status commit() override;

 private:
  Status append(std::string_view bytes) override {
    buffer_ += bytes;
    return buffer_.size() >= kBufferBytes ? flush() : Status::ok();
  }
  Status flush();
  void discard() {
    if (fd_) ::unlink(part_of(path_).c_str());
    fd_.reset();
  }
  /// Nothing is left of it when the error is answered.
  Status failed(int error) {
    discard();
    return write_error(path_, error);
  }
  const fs::path path_;  ///< without ".part"
  shm::UniqueFd fd_;
  std::string buffer_;
};

Status FolderPart::flush() {
  for (size_t at = 0; at < buffer_.size();) {
    const ssize_t n = ::write(fd_.get(), buffer_.data() + at, buffer_.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno);
    at += static_cast<size_t>(n);
  }
  buffer_.clear();
  return Status::ok();
}

Status FolderPart::commit() {
  MOESTRO_RETURN_IF_ERROR(flush());
  if (::fsync(fd_.get()) != 0) return failed(errno);
  if (::rename(part_of(path_).c_str(), path_.c_str()) != 0) return failed(errno);
  fd_.reset();
  const shm::UniqueFd folder(::open(path_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return write_error(path_, errno);
  return Status::ok();
}

class FolderBytes final : public FileBytes {
 public:
  FolderBytes(fs::path path, shm::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Result<std::string> read(uint64_t offset, size_t size) override {
    std::string piece(size, '\0');
    ssize_t n = 0;
    do n = ::pread(fd_.get(), piece.data(), piece.size(), static_cast<off_t>(offset));
    while (n < 0 && errno == EINTR);
    if (n < 0) return io_error("reading " + path_.string(), errno);
    piece.resize(static_cast<size_t>(n));
    return piece;
  }

 private:
  const fs::path path_;
  const shm::UniqueFd fd_;
};

}  // namespace

Result<std::unique_ptr<FileStore>> FolderFiles::open_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    return io_error(folder.string() + " is not a directory");
  return std::unique_ptr<FileStore>(new FolderFiles(folder));
}

Result<std::unique_ptr<PartFile>> FolderFiles::create(const std::string& id) const {
  const auto open_part = [part = part_of(path(id))] {
    return shm::UniqueFd(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  };
  shm::UniqueFd fd = open_part();
  if (!fd && errno == ENOENT && ::mkdir(folder_.c_str(), 0700) == 0) fd = open_part();
  if (!fd) return write_error(path(id), errno);
  return std::unique_ptr<PartFile>(std::make_unique<FolderPart>(path(id), std::move(fd)));
}

Result<std::unique_ptr<FileBytes>> FolderFiles::open(const std::string& id) const {
  shm::UniqueFd fd(::open(path(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno == ENOENT) {
    std::error_code error;
    if (!fs::is_directory(folder_, error)) return unavailable("the folder " + folder_.string() + " is not there");
    return not_found("file " + id + " is gone from " + folder_.string());
  }
  if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
    return exhausted("cannot read " + path(id).string() + ": " + std::generic_category().message(errno));
  if (!fd) return io_error("cannot read " + path(id).string(), errno);
  return std::unique_ptr<FileBytes>(std::make_unique<FolderBytes>(path(id), std::move(fd)));
}

void FolderFiles::remove(const std::string& id) const {
  if (::unlink(path(id).c_str()) != 0 && errno != ENOENT)
    log::warn("cannot remove {}: {}", path(id).string(), std::error_code(errno, std::generic_category()).message());
}

void FolderFiles::sweep(const std::function<bool(const std::string& id)>& known) const {
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    // Only what has a name of ours: the folder may have been given wrongly.
    const bool part = name.ends_with(".part") && is_id(name.substr(0, name.size() - 5), "file-");
    if (part || (is_id(name, "file-") && !known(name))) remove(name);
  }
}

}  // namespace moestro::orchestrator
