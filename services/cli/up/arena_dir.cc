#include "services/cli/up/arena_dir.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "common/config/units.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSideBytes = 64 << 20;  // table, pins, doorbells, locks

bool is_mount(const fs::path& path) {
  struct stat here {
  }, above{};
  return ::stat(path.c_str(), &here) == 0 && ::stat(path.parent_path().c_str(), &above) == 0 &&
         here.st_dev != above.st_dev;
}

/// Unmounts what an `up` that was killed has left. Its store may still be ending, so a busy mount gets a few
/// seconds.
Status unmount(const fs::path& path) {
  for (int i = 0; ::umount2(path.c_str(), UMOUNT_NOFOLLOW) != 0; ++i) {
    if (errno == EINVAL) return Status::ok();  // no longer mounted
    if (errno != EBUSY || i == 100) return io_error("cannot unmount " + path.string(), errno);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Status::ok();
}

std::optional<std::string> mount_tmpfs(const fs::path& path, std::optional<uint64_t> dram) {
  const std::string size = dram ? std::to_string(*dram + *dram / 16 + kSideBytes) : "90%";
  for (const char* huge : {",huge=within_size", ""}) {  // kernels without huge pages refuse the option
    const std::string options = "mode=0700,size=" + size + huge;
    if (::mount("moestro", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options.c_str()) == 0)
      return std::nullopt;
    if (errno != EINVAL) break;
  }
  return std::string(std::strerror(errno));
}

/// Why a directory for the arena cannot be had under /dev/shm, or nothing.
std::optional<std::string> shm_refusal(std::optional<uint64_t> dram) {
  struct statfs info {};
  if (::statfs("/dev/shm", &info) != 0 || ::access("/dev/shm", W_OK) != 0) return "/dev/shm is not there";
  const uint64_t room = static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
  const uint64_t need = dram.value_or(128 << 20) + kSideBytes;
  if (room >= need) return std::nullopt;
  return "/dev/shm has room for " + config::readable_size(room) + " of " + config::readable_size(need);
}

Status make_private_dir(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return Status::ok();
  struct stat info {};
  if (errno != EEXIST) return io_error("cannot make arena directory " + path.string(), errno);
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & 077) != 0)
    return invalid_argument(
        "arena directory " + path.string() +
        " is not a directory of yours that is closed to others; remove it or give --arena-dir");
  return Status::ok();
}

/// A name under /dev/shm that belongs to this run directory alone.
fs::path shm_path(const fs::path& run_dir) {
  std::string tail = run_dir.string().substr(1);
  for (char& c : tail)
    if (c == '/') c = '-';
  return fs::path("/dev/shm") / ("moestro-" + std::to_string(::geteuid()) + "-" + tail);
}

}  // namespace

ArenaDir::ArenaDir(ArenaDir&& other) noexcept
    : owned_(std::exchange(other.owned_, Owned::kNothing)),
      path_(std::move(other.path_)),
      explanation_(std::move(other.explanation_)) {}

ArenaDir::~ArenaDir() {
  std::error_code ignored;
  if (owned_ == Owned::kMount && ::umount2(path_.c_str(), UMOUNT_NOFOLLOW) != 0)
    ::umount2(path_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  if (owned_ != Owned::kNothing) fs::remove_all(path_, ignored);
}

Result<ArenaDir> choose_arena_dir(const std::string& wanted, const fs::path& run_dir,
                                  std::optional<uint64_t> dram) {
  ArenaDir arena;
  if (!wanted.empty()) {
    arena.path_ = fs::absolute(wanted).lexically_normal();
    std::error_code error;
    if (!fs::is_directory(arena.path_, error)) MOESTRO_RETURN_IF_ERROR(make_private_dir(arena.path_));
    arena.explanation_ = "arena in " + arena.path_.string();
    return arena;
  }
  const fs::path own = run_dir / "arena";
  if (is_mount(own)) MOESTRO_RETURN_IF_ERROR(unmount(own));
  MOESTRO_RETURN_IF_ERROR(make_private_dir(own));
  const std::optional<std::string> no_mount = mount_tmpfs(own, dram);
  if (!no_mount) {
    arena.owned_ = ArenaDir::Owned::kMount;
    arena.path_ = own;
    arena.explanation_ = "arena in " + own.string() + ", a tmpfs of its own";
    return arena;
  }
  const std::optional<std::string> no_shm = shm_refusal(dram);
  arena.path_ = no_shm ? own : shm_path(run_dir);
  if (!no_shm) MOESTRO_RETURN_IF_ERROR(make_private_dir(arena.path_));
  arena.owned_ = ArenaDir::Owned::kDirectory;
  arena.explanation_ = "arena in " + arena.path_.string() +
                       " (no tmpfs of its own, so no huge pages: mount says '" + *no_mount + "'" +
                       (no_shm ? "; " + *no_shm + ", so it may touch the disk: see moestro doctor" : "") +
                       ")";
  return arena;
}

}  // namespace moestro::cli
