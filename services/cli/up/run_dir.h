#pragma once
// The run directory: sockets, locks, logs. Only its owner and the group of --group may enter it, for whoever reaches
// the sockets can talk to the programs.

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
  Fd up_lock;        ///< held by `up` alone: one `up` a directory
  Fd programs_lock;  ///< inherited by the programs: free only when the last of them is gone
};

/// $XDG_RUNTIME_DIR/moestro/NAME, else /tmp/moestro-UID/NAME.
std::filesystem::path default_run_dir(const std::string& name);

/// Where files and batches are kept that are to survive a restart of the machine: $XDG_STATE_HOME/moestro/NAME, else
/// ~/.local/state/moestro/NAME. Empty: the user has no home.
std::filesystem::path default_state_dir(const std::string& name);

/// Makes that directory and what is missing above it, each for its user alone.
Status make_state_dir(const std::filesystem::path& path);

/// Makes the directory or checks that it is the caller's own, closed to all but the group of `access`, and that nobody
/// else can put another in its place; and takes both locks. Refused: a path too long for its sockets, a directory in
/// use. Waits up to a minute for the programs of an `up` that was killed.
Result<RunDir> open_run_dir(const std::filesystem::path& path, const shm::FileAccess& access = {});

/// The last `lines_max` lines of a log, at most 8 KiB.
std::string log_tail(const std::filesystem::path& log, int lines_max);

/// Why `binary` ended, in its own words: the log's last line where it begins with "BINARY: ", without that. Empty: it
/// said nothing.
std::string last_words(const std::filesystem::path& log, const std::string& binary);

}  // namespace moestro::cli
