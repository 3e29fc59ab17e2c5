#pragma once
// Child processes and signals, for `up`.

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "services/cli/common/run_dir.h"
#include "services/cli/up/supervisor.h"

namespace moestro::cli {

/// The binary in this program's folder, otherwise on PATH. kNotFound names the places that were searched.
Result<std::filesystem::path> find_binary(const std::string& name);

/// Starts `binary` in its own process group (so that Ctrl-C reaches only `up`), with SIGTERM as its death signal when
/// the calling thread ends. stdin is empty; stdout and stderr are appended to `log`. The caller must have no other
/// thread.
Result<pid_t> launch(const std::filesystem::path& binary, const std::vector<std::string>& arguments,
                     const std::filesystem::path& log);

/// How `pid` ended, if it has.
std::optional<ProcessEnd> reap(pid_t pid);

/// Waits for SIGINT, SIGTERM, SIGHUP and SIGCHLD, which are blocked from now on. SIGPIPE is ignored.
class Signals {
 public:
  static Result<Signals> take();
  /// Waits up to `timeout_ms` and empties the queue of signals.
  struct Seen {
    int stops = 0;  ///< how often
  };
  Seen wait(int timeout_ms);

 private:
  explicit Signals(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace moestro::cli
