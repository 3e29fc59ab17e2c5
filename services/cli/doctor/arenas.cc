#include "services/cli/doctor/arenas.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "services/cli/common/run_dir.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

bool is_mine(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

/// Holding it, or nothing if another does.
Fd try_lock(const fs::path& dir) {
  Fd fd(::open((dir / "store.lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() >= 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return Fd();
  return fd;
}

uint64_t allocated_bytes(const fs::path& dir) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(dir, error)) {
    struct stat info {};
    if (::lstat(entry.path().c_str(), &info) == 0 && S_ISREG(info.st_mode))
      bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

void consider(const fs::path& dir, std::vector<Arena>& arenas) {
  std::error_code error;
  if (!is_mine(dir) || !fs::is_regular_file(fs::symlink_status(dir / "store.lock", error))) return;
  arenas.push_back({dir, allocated_bytes(dir), try_lock(dir).get() < 0});
}

bool is_mount(const fs::path& path) {
  struct stat here {
  }, above{};
  return ::stat(path.c_str(), &here) == 0 && ::stat(path.parent_path().c_str(), &above) == 0 &&
         here.st_dev != above.st_dev;
}

}  // namespace

std::vector<Arena> find_arenas(const std::vector<fs::path>& roots, const std::vector<fs::path>& extra) {
  std::vector<Arena> arenas;
  const std::string mine = "moestro-" + std::to_string(::geteuid());
  for (const fs::path& root : roots) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root, error))
      if (entry.path().filename().string().starts_with(mine + "-")) consider(entry.path(), arenas);
    for (const fs::path& home : {root / mine, root / "moestro"})
      for (const auto& entry : fs::directory_iterator(home, error)) consider(entry.path() / "arena", arenas);
  }
  for (const fs::path& dir : extra) consider(dir, arenas);
  return arenas;
}

Status remove_arena(const Arena& arena) {
  {
    const Fd lock = try_lock(arena.dir);
    if (lock.get() < 0) return unavailable("arena " + arena.dir.string() + " is in use by a store");
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(arena.dir, error)) {
      std::error_code failed;
      fs::remove_all(entry.path(), failed);
      if (failed) return io_error("cannot remove " + entry.path().string(), failed.value());
    }
    if (error) return io_error("cannot read " + arena.dir.string(), error.value());
  }
  if (is_mount(arena.dir) && ::umount2(arena.dir.c_str(), UMOUNT_NOFOLLOW) != 0 && errno != EPERM)
    return io_error("cannot unmount " + arena.dir.string(), errno);
  std::error_code ignored;
  fs::remove(arena.dir, ignored);  // stays where it is a mount of the user's own
  return Status::ok();
}

}  // namespace moestro::cli
