#pragma once
// The command line of moestro-store.

#include <string>

#include "common/status.h"
#include "store/server/store_options.h"

namespace moestro::store {

struct ProgramOptions {
  StoreOptions store;
  std::string log_level = "info", log_format = "text", fault_points;
};

/// Reads the YAML file of `-c` and then the command line, which takes precedence. On `--help` or an error it prints the
/// text and returns the exit code instead.
struct ParsedOptions {
  ProgramOptions options;
  int exit_code = -1;  ///< >= 0: end now
};
ParsedOptions parse_options(int argc, char** argv);

}  // namespace moestro::store
