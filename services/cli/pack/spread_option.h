#pragma once
// --spread DIR[=SHARE]: the drives that a pack is dealt out to.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "store/pack/packer.h"

namespace moestro::cli {

/// Fills `spread` and `own_share`. Shares that are not given are measured: what each directory's drive reads, in MiB a
/// second; `note` is told. Either all directories come with a share (the pack's own then has 1, or what PACK=SHARE
/// says), or none.
Status read_spread(const std::vector<std::string>& words, const std::filesystem::path& pack,
                   store::PackOptions& options, const std::function<void(const std::string&)>& note);

}  // namespace moestro::cli
