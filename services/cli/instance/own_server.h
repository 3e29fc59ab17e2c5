#pragma once
// Where the orchestrator of a box on this machine listens, and how to know that it is the one.

#include <filesystem>

#include "common/config/box_config.h"
#include "services/cli/common/server_options.h"

namespace moestro::cli {

/// What `moestro up` wrote into the run directory, into `box`; nothing if there is nothing.
Status read_box_in_effect(const std::filesystem::path& run_dir, config::BoxConfig& box);

/// By `box`, and the port that it took as RUN_DIR/http.port has it. Over https it must show the very certificate of
/// `box`, whatever name that is for; with --ca-file one that is trusted by that, for the address. `options.url` is not
/// looked at.
Result<Server> own_server(const config::BoxConfig& box, const std::filesystem::path& run_dir, ServerOptions options);

}  // namespace moestro::cli
