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
#include "common/shm/file_lock.h"
#include "services/cli/common/output.h"

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

std::optional<std::string> mount_tmpfs(const fs::path& path, const shm::FileAccess& access,
                                       std::optional<uint64_t> dram) {
  const std::string size = dram ? std::to_string(*dram + *dram / 16 + kSideBytes) : "90%";
  const std::string entry = access.group ? "mode=0750,gid=" + std::to_string(*access.group) : "mode=0700";
  for (const char* huge : {",huge=within_size", ""}) {  // kernels without huge pages refuse the option
    const std::string options = entry + ",size=" + size + huge;
    if (::mount("moestro", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options.c_str()) == 0)
      return std::nullopt;
    if (errno != EINVAL) break;
  }
  return std::string(std::strerror(errno));
}

uint64_t room_in(const struct statfs& info) {
  return static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
}

/// Why `own` is better for the arena than a directory under /dev/shm, or nothing. Run directories are often on a tmpfs
/// that is much smaller than /dev/shm, or on a disk.
std::optional<std::string> shm_refusal(const fs::path& own, std::optional<uint64_t> dram) {
  struct statfs shm = {}, there = {};
  if (::statfs("/dev/shm", &shm) != 0 || ::access("/dev/shm", W_OK) != 0) return "/dev/shm is not there";
  const uint64_t room = room_in(shm), need = dram.value_or(128 << 20) + kSideBytes;
  if (room >= need || (::statfs(own.c_str(), &there) == 0 && room_in(there) < room)) return std::nullopt;
  return "/dev/shm has room for " + config::readable_size(room) + " of " + config::readable_size(need);
}

bool held(const fs::path& file) {
  auto lock = shm::FileLock::open(file, /*create=*/false);
  const auto elsewhere = lock ? lock->held_elsewhere() : Result<bool>(false);
  return elsewhere && *elsewhere;
}

/// A store holds `alive` for as long as it lives, and `store.lock` until the last of its reads has landed.
Status check_free(const fs::path& arena_dir) {
  if (held(arena_dir / "alive"))
    return unavailable("another store serves out of " + arena_dir.string() + ": stop it, or give another --arena-dir");
  if (held(arena_dir / "store.lock"))
    note("waiting for " + (arena_dir / "store.lock").string() +
         ": the last reads of a store that was killed, or another store that is starting, hold it");
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

Result<ArenaDir> choose_arena_dir(const std::string& wanted, const fs::path& run_dir, std::optional<uint64_t> dram,
                                  const shm::FileAccess& access) {
  constexpr const char* kWhat = "arena directory";
  ArenaDir arena;
  if (!wanted.empty()) {
    arena.path_ = fs::absolute(wanted).lexically_normal();
    std::error_code error;
    if (!fs::is_directory(arena.path_, error))
      MOESTRO_RETURN_IF_ERROR(shm::make_closed_dir(arena.path_, access, kWhat));
    MOESTRO_RETURN_IF_ERROR(shm::check_group_reaches(arena.path_, access, kWhat).with_context("--arena-dir"));
    MOESTRO_RETURN_IF_ERROR(check_free(arena.path_));
    arena.explanation_ = "arena in " + arena.path_.string();
    return arena;
  }
  const fs::path own = run_dir / "arena";
  if (is_mount(own)) MOESTRO_RETURN_IF_ERROR(unmount(own));
  MOESTRO_RETURN_IF_ERROR(shm::make_closed_dir(own, access, kWhat));
  const std::optional<std::string> no_mount = mount_tmpfs(own, access, dram);
  if (!no_mount) {
    arena.owned_ = ArenaDir::Owned::kMount;
    arena.path_ = own;
    arena.explanation_ = "arena in " + own.string() + ", a tmpfs of its own";
    return arena;
  }
  const std::optional<std::string> no_shm = shm_refusal(own, dram);
  arena.path_ = no_shm ? own : shm_path(run_dir);
  if (!no_shm) MOESTRO_RETURN_IF_ERROR(shm::make_closed_dir(arena.path_, access, kWhat));
  arena.owned_ = ArenaDir::Owned::kDirectory;
  arena.explanation_ = "arena in " + arena.path_.string() +
                       " (no tmpfs of its own, so no huge pages: mount says '" + *no_mount + "'" +
                       (no_shm ? "; " + *no_shm + ", so it may touch the disk: see moestro doctor" : "") +
                       ")";
  return arena;
}

}  // namespace moestro::cli
