#include "common/shm/whole_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/shm/mapped_file.h"

namespace moestro::shm {
namespace {

namespace fs = std::filesystem;

fs::path part_of(const fs::path& path) { return path.string() + ".part"; }

bool on_hugetlbfs(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 && info.f_type == HUGETLBFS_MAGIC;
}

Status write_over(int fd, std::string_view text, const fs::path& path) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::pwrite(fd, text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return io_error("cannot write " + path.string(), errno);
    at += static_cast<size_t>(n);
  }
  if (::ftruncate(fd, static_cast<off_t>(text.size())) != 0 || ::fsync(fd) != 0)
    return io_error("cannot write " + path.string(), errno);
  return Status::ok();
}

Status write_part(const fs::path& part, std::string_view text, mode_t mode) {
  const UniqueFd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return io_error("cannot create " + part.string(), errno);
  if (on_hugetlbfs(fd.get())) {  // it has no write(2); what follows the text in its page are zeros
    MOESTRO_ASSIGN_OR_RETURN(auto mapped, MappedFile::create(part, text.size(), mode));
    MOESTRO_RETURN_IF_ERROR(mapped.back(0, mapped.size()));
    std::memcpy(mapped.data(), text.data(), text.size());
    return Status::ok();
  }
  if (::fchmod(fd.get(), mode) != 0) return io_error("cannot set the rights of " + part.string(), errno);
  return write_over(fd.get(), text, part);
}

}  // namespace

Status write_whole_file(const fs::path& path, std::string_view text, mode_t mode) {
  MOESTRO_RETURN_IF_ERROR(write_part(part_of(path), text, mode));
  if (::rename(part_of(path).c_str(), path.c_str()) != 0)
    return io_error("cannot rename " + part_of(path).string(), errno);
  return Status::ok();
}

Status reserve_whole_file(const fs::path& path, size_t bytes) {
  return write_part(part_of(path), std::string(bytes, ' '), 0600);
}

void put_aside(const fs::path& path) {
  if (::rename(path.c_str(), part_of(path).c_str()) != 0 && errno != ENOENT) ::unlink(path.c_str());
}

}  // namespace moestro::shm
