#include "orchestrator/batch/file_store.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/check.h"
#include "common/log.h"

namespace moestro::orchestrator {
namespace {

namespace fs = std::filesystem;
constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kIdDigits = 24;

Status write_error(const fs::path& path, int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return exhausted("the disk of " + path.parent_path().string() + " is full, or the file may not be as large; free some room there");
  return io_error("writing " + path.string(), error);
}

fs::path part_of(const fs::path& path) { return path.string() + ".part"; }

}  // namespace

PartFile::~PartFile() {
  if (fd_) ::unlink(part_of(path_).c_str());
}

Status PartFile::write(std::string_view bytes) {
  buffer_ += bytes;
  bytes_ += bytes.size();
  return buffer_.size() >= kBufferBytes ? flush() : Status::ok();
}

Status PartFile::flush() {
  for (size_t at = 0; at < buffer_.size();) {
    const ssize_t n = ::write(fd_.get(), buffer_.data() + at, buffer_.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return write_error(path_, errno);
    at += static_cast<size_t>(n);
  }
  buffer_.clear();
  return Status::ok();
}

Status PartFile::commit() {
  MOESTRO_RETURN_IF_ERROR(flush());
  if (::fsync(fd_.get()) != 0) return write_error(path_, errno);
  if (::rename(part_of(path_).c_str(), path_.c_str()) != 0) return write_error(path_, errno);
  fd_.reset();
  const shm::UniqueFd folder(::open(path_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return write_error(path_, errno);
  return Status::ok();
}

Result<FileStore> FileStore::open(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return io_error("cannot make " + folder.string(), errno);
  std::error_code error;
  if (!fs::is_directory(folder, error)) return io_error(folder.string() + " is not a directory");
  return FileStore(folder);
}

Result<PartFile> FileStore::create(const std::string& id) const {
  shm::UniqueFd fd(::open(part_of(path(id)).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return write_error(path(id), errno);
  return PartFile(path(id), std::move(fd));
}

Result<shm::UniqueFd> FileStore::read(const std::string& id) const {
  shm::UniqueFd fd(::open(path(id).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return io_error("cannot read " + path(id).string(), errno);
  return fd;
}

void FileStore::remove(const std::string& id) const {
  if (::unlink(path(id).c_str()) != 0 && errno != ENOENT) log::warn("cannot remove {}: {}", path(id).string(), std::error_code(errno, std::generic_category()).message());
}

void FileStore::sweep(const std::function<bool(const std::string& id)>& known) const {
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    // Only what has a name of ours: the folder may have been given wrongly.
    const bool part = name.ends_with(".part") && is_id(name.substr(0, name.size() - 5), "file-");
    if (part || (is_id(name, "file-") && !known(name))) remove(name);
  }
}

std::string new_id(const std::string& prefix) {
  std::array<unsigned char, kIdDigits / 2> bytes;
  MOESTRO_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "the kernel gives random bytes");
  std::string id = prefix;
  for (const unsigned char b : bytes) {
    constexpr const char* kHex = "0123456789abcdef";
    id += kHex[b >> 4];
    id += kHex[b & 15];
  }
  return id;
}

bool is_id(const std::string& text, const std::string& prefix) {
  return text.size() == prefix.size() + kIdDigits && text.starts_with(prefix) &&
         text.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
}

}  // namespace moestro::orchestrator
