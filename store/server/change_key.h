#pragma once
// The key that is needed to change what is served: RUN_DIR/store.key. Only the store's own user can read it, even if a
// group may use the socket. A worker asks for blobs; it does not choose the files that the store opens.

#include <filesystem>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::store {

/// The existing key, otherwise a new one. So a store that restarts on a full file system still has its key.
Result<std::string> change_key_in(const std::filesystem::path& run_dir);

/// Compares in constant time.
bool is_key(std::string_view given, std::string_view key);

}  // namespace moestro::store
