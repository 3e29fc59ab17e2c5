#pragma once
// Who may change what is served: whoever can read RUN_DIR/store.key, which is the store's own user alone, also where a
// group may reach the socket. A worker asks for blobs; it does not choose the files that the store opens.

#include <filesystem>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::store {

/// The key that is there, or else a new one. A store that starts again where there is no room left still has its key.
Result<std::string> change_key_in(const std::filesystem::path& run_dir);

/// Takes as long for a wrong key as for the right one.
bool is_key(std::string_view given, std::string_view key);

}  // namespace moestro::store
