#include "common/shm/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

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

/// The whole file, for writing, of this open file description.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK, lock.l_whence = SEEK_SET;
  return lock;
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

/// Two locks, of which the kernel lets go together: flock keeps others out; whether the other is held can be asked for
/// without taking it, not even for an instant. Whoever looks by taking hinders the one who locks just then, and,
/// stopped amid it, for as long as it is stopped.
Result<bool> FileLock::try_lock() {
  MOESTRO_ASSIGN_OR_RETURN(const bool ours, flock_nowait(fd_.get(), LOCK_EX));
  if (!ours) return false;
  struct flock lock = whole_file();
  if (fcntl(fd_.get(), F_OFD_SETLK, &lock) == 0) return true;
  const int error = errno;
  flock(fd_.get(), LOCK_UN);
  return io_error("fcntl(F_OFD_SETLK)", error);
}

void FileLock::unlock() {
  struct flock lock = whole_file();
  lock.l_type = F_UNLCK;
  (void)fcntl(fd_.get(), F_OFD_SETLK, &lock);
  flock(fd_.get(), LOCK_UN);
}

Result<bool> FileLock::held_elsewhere() {
  struct flock lock = whole_file();
  if (fcntl(fd_.get(), F_OFD_GETLK, &lock) != 0) return io_error("fcntl(F_OFD_GETLK)", errno);
  return lock.l_type != F_UNLCK;
}

}  // namespace moestro::shm
