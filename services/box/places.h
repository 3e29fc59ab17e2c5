#pragma once
// The endpoints of a box's programs, and the files that several workers must not share.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/box_config.h"

namespace moestro::box {

/// Where `moestro up` makes run directories by itself, each under its NAME: $XDG_RUNTIME_DIR/moestro if that variable
/// names a directory, and /tmp/moestro-UID. New ones are made in the first.
std::vector<std::filesystem::path> run_homes();

/// "ipc://RUN_DIR/store.sock" and "ipc://RUN_DIR/orchestrator.sock".
std::string store_endpoint(const std::filesystem::path& run_dir);
std::string orchestrator_endpoint(const std::filesystem::path& run_dir);

/// "routes.jsonl.zst", "worker-1" -> "routes.worker-1.jsonl.zst".
std::filesystem::path insert_name(const std::filesystem::path& file, const std::string& name);

/// The file that a worker of this box writes: `file` itself if there is one worker, otherwise with the worker's name
/// inserted. Empty stays empty.
std::string own_file(const config::BoxConfig& box, const std::string& file, const std::string& worker);

/// Threads of one worker: workers.threads, or, if that is auto and there are several workers, its part of `cores`.
/// nullopt: the worker decides.
std::optional<int64_t> worker_threads(const config::BoxConfig& box, int64_t cores);

}  // namespace moestro::box
