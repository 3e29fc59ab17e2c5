#pragma once
// The result of a subcommand of `moestro` for main(). Commands run as CLI11 callbacks and never exit by themselves.

namespace moestro::cli {

struct CommandResult {
  int exit_code = 0;  ///< 0: success, 1: the operation failed (one line on stderr), 2: wrong command line
};

}  // namespace moestro::cli
