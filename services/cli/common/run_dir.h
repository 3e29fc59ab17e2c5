#pragma once
// The run directory: sockets, locks, logs. Only its owner and the group of --group may enter it, because a user who
// reaches the sockets can control the programs.

#include <filesystem>
#include <string>
#include <utility>

#include "common/shm/file_access.h"
#include "common/status.h"

namespace moestro::cli {

/// A descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct RunDir {
  std::filesystem::path path;
  Fd up_lock;        ///< held only by `up`: one `up` per directory
  Fd programs_lock;  ///< inherited by the programs: free only when the last of them is gone
};

/// $XDG_RUNTIME_DIR/moestro/NAME, else /tmp/moestro-UID/NAME.
std::filesystem::path default_run_dir(const std::string& name);

/// The directory of files and batches that survive a restart of the machine: $XDG_STATE_HOME/moestro/NAME, else
/// ~/.local/state/moestro/NAME. Empty: the user has no home.
std::filesystem::path default_state_dir(const std::string& name);

/// Creates that directory and missing ones above it, each only for its user.
Status make_state_dir(const std::filesystem::path& path);

/// Creates the directory, or checks that it belongs to the caller, is closed to all but the group of `access`, and
/// cannot be replaced by another user. Takes both locks. Refuses a path that is too long for sockets, and a directory
/// in use. Waits up to a minute for the programs of a killed `up`.
Result<RunDir> open_run_dir(const std::filesystem::path& path, const shm::FileAccess& access = {});

/// The last `lines_max` lines of a log, at most 8 KiB.
std::string log_tail(const std::filesystem::path& log, int lines_max);

/// Why `binary` ended, in its own words: the log's last line without "BINARY: ", if it begins with that. Empty: there
/// is none.
std::string last_words(const std::filesystem::path& log, const std::string& binary);

}  // namespace moestro::cli
