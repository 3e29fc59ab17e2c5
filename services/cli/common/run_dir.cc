#include "services/cli/common/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "services/box/named_pack.h"
#include "services/box/places.h"
#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

/// Without its `up` each program ends as soon as it can: a worker after its step, a store after the reads under way,
/// which a slow drive may take long for.
constexpr std::chrono::seconds kPatience{60};
constexpr std::string_view kLongestSocket = "orchestrator.sock";

Status check_length(const fs::path& path) {
  constexpr size_t kMax = sizeof(sockaddr_un::sun_path) - 1;
  const size_t length = path.string().size() + 1 + kLongestSocket.size();
  if (length <= kMax) return Status::ok();
  return invalid_argument("run directory " + path.string() + " is too long: a socket's path has at most " +
                          std::to_string(kMax) + " bytes and this would make " + std::to_string(length) +
                          "; give a shorter one with --run-dir");
}

Result<Fd> open_lock(const fs::path& file, int extra_flags) {
  Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | extra_flags, 0600));
  if (fd.get() < 0) return io_error("cannot open " + file.string(), errno);
  return fd;
}

bool try_lock(const Fd& fd) {
  return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

Status wait_for_lock(const Fd& fd, const fs::path& dir) {
  bool said = false;
  for (const auto end = std::chrono::steady_clock::now() + kPatience; std::chrono::steady_clock::now() < end;) {
    if (try_lock(fd)) return Status::ok();
    if (!std::exchange(said, true))
      note("waiting for the programs of an earlier run in " + dir.string() + " to end");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return unavailable("programs of an earlier run still live in " + dir.string() +
                     "; end them, or give another --run-dir");
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

fs::path default_run_dir(const std::string& name) {
  return box::run_homes().front() / box::name_in_path(name);
}

fs::path default_state_dir(const std::string& name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return fs::path(state) / "moestro" / box::name_in_path(name);
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/' && home[1] != '\0')
    return fs::path(home) / ".local" / "state" / "moestro" / box::name_in_path(name);
  return {};
}

Status make_state_dir(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return Status::ok();
  if (path.has_parent_path() && path.parent_path() != path) MOESTRO_RETURN_IF_ERROR(make_state_dir(path.parent_path()));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return io_error("cannot make " + path.string() + " for files and batches (give another --state)", errno);
  return Status::ok();
}

Result<RunDir> open_run_dir(const fs::path& path, const shm::FileAccess& access) {
  constexpr const char* kWhat = "run directory";
  RunDir dir;
  dir.path = fs::absolute(path).lexically_normal();
  if (!dir.path.has_filename()) dir.path = dir.path.parent_path();
  MOESTRO_RETURN_IF_ERROR(check_length(dir.path));
  const fs::path parent = dir.path.parent_path();
  // Only the last two levels are made: a mistyped path must not become a tree. A group passes through the first.
  if (::mkdir(parent.c_str(), 0700) == 0 && access.group && ::chmod(parent.c_str(), 0711) != 0)
    return io_error("cannot set the mode of " + parent.string(), errno);
  MOESTRO_RETURN_IF_ERROR(shm::check_way(dir.path, kWhat).with_context("--run-dir"));
  MOESTRO_RETURN_IF_ERROR(shm::make_closed_dir(dir.path, access, kWhat).with_context("--run-dir"));
  MOESTRO_RETURN_IF_ERROR(shm::check_group_reaches(dir.path, access, kWhat).with_context("--run-dir"));
  std::error_code error;
  MOESTRO_ASSIGN_OR_RETURN(dir.up_lock, open_lock(dir.path / "up.lock", O_CLOEXEC));
  if (!try_lock(dir.up_lock))
    return unavailable("another `moestro up` runs in " + dir.path.string() +
                       "; stop it, or give another --name or --run-dir");
  MOESTRO_ASSIGN_OR_RETURN(dir.programs_lock, open_lock(dir.path / "programs.lock", 0));
  MOESTRO_RETURN_IF_ERROR(wait_for_lock(dir.programs_lock, dir.path));
  fs::create_directory(dir.path / "logs", error);
  if (error) return io_error("cannot make " + (dir.path / "logs").string(), error.value());
  return dir;
}

std::string log_tail(const fs::path& log, int lines_max) {
  constexpr std::streamoff kBytesMax = 8192;
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kBytesMax));
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  size_t from = text.size();
  if (text.ends_with('\n')) --from;
  for (int i = 0; i < lines_max && from != std::string::npos && from > 0; ++i)
    from = text.rfind('\n', from - 1);
  return from == std::string::npos || from == 0 ? text : text.substr(from + 1);
}

std::string last_words(const fs::path& log, const std::string& binary) {
  std::string line = log_tail(log, 1);
  if (!line.starts_with(binary + ": ")) return {};
  if (line.ends_with('\n')) line.pop_back();
  return line.substr(binary.size() + 2);
}

}  // namespace moestro::cli
