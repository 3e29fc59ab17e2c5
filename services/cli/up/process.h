#pragma once
// Child processes and signals, for `up`.

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "services/cli/up/run_dir.h"
#include "services/cli/up/supervisor.h"

namespace moestro::cli {

/// The binary beside this one, else on PATH. kNotFound names where it was looked for.
Result<std::filesystem::path> find_binary(const std::string& name);

/// Starts `binary` in a process group of its own (so that Ctrl-C reaches `up` alone), with SIGTERM as its
/// death signal when the calling thread ends, nothing on stdin, stdout and stderr appended to `log`. The
/// caller must have no other thread.
Result<pid_t> launch(const std::filesystem::path& binary, const std::vector<std::string>& arguments,
                     const std::filesystem::path& log);

/// How `pid` ended, if it has.
std::optional<ProcessEnd> reap(pid_t pid);

/// SIGINT, SIGTERM, SIGHUP and SIGCHLD as something to wait for; blocked otherwise from here on, SIGPIPE
/// ignored.
class Signals {
 public:
  static Result<Signals> take();
  /// Waits up to `timeout_ms` and empties the queue. True: the user wants an end.
  struct Seen {
    int stops = 0;  ///< how often
  };
  Seen wait(int timeout_ms);

 private:
  explicit Signals(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace moestro::cli
