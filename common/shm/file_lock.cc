#include "common/shm/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

namespace moestro::shm {
namespace {

Result<bool> flock_nowait(int fd, int operation) {
  while (flock(fd, operation | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    return io_error("flock", errno);
  }
  return true;
}

}  // namespace

Result<FileLock> FileLock::open(const std::filesystem::path& path, bool create, mode_t mode) {
  FileLock lock;
  lock.fd_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), mode));
  // A lock needs no write permission, and the arena's directory may be mounted read-only.
  if (!lock.fd_ && !create && (errno == EACCES || errno == EROFS))
    lock.fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock.fd_ && errno == ENOENT) return not_found(path.string() + " does not exist");
  if (!lock.fd_) return io_error("cannot open " + path.string(), errno);
  return lock;
}

Result<bool> FileLock::try_lock() { return flock_nowait(fd_.get(), LOCK_EX); }

void FileLock::unlock() { flock(fd_.get(), LOCK_UN); }

Result<bool> FileLock::held_elsewhere() {
  MOESTRO_ASSIGN_OR_RETURN(const bool taken, flock_nowait(fd_.get(), LOCK_SH));
  if (taken) unlock();
  return !taken;
}

}  // namespace moestro::shm
