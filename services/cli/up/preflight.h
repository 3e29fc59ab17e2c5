#pragma once
// What would keep the programs from serving although every key is well-formed, found before any of them starts: files
// that cannot be used, and a port or a state that another program has. An error names the flag.

#include <filesystem>

#include "common/config/box_config.h"
#include "common/config/host_port.h"
#include "common/status.h"

namespace moestro::cli {

/// The file of API keys and the TLS files.
Status check_files(const config::BoxConfig& box);

/// Listens on the address for a moment. kUnavailable if another program does.
Status check_port(const config::HostPort& http);

/// Looks at the state, as far as that can be done without opening it; leaves nothing behind. One in a run directory
/// that is not there yet has nothing against it.
Status check_state(const config::BoxConfig& box, const std::filesystem::path& run_dir);

}  // namespace moestro::cli
