#pragma once
// --spread DIR[=SHARE]: the drives that a pack is spread over.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "store/pack/packer.h"

namespace moestro::cli {

/// Fills `spread` and `own_share`. Shares that are not given are measured: the speed of each directory's drive in MiB
/// per second, which `note` gets. Either all directories have a share (the pack's own is then 1, or that of
/// PACK=SHARE), or none.
Status read_spread(const std::vector<std::string>& words, const std::filesystem::path& pack,
                   store::PackOptions& options, const std::function<void(const std::string&)>& note);

}  // namespace moestro::cli
