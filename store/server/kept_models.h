#pragma once
// The models that a running store serves after `moestro store add`, `replace` and `remove`: RUN_DIR/store.models, while
// they differ from those at start. A store that is shut down removes the file. A killed store leaves it, and its
// successor with the same start options continues with these models.
//
//   moestro-models 2
//   dram 8589934592                        --dram; 0: auto
//   started demo /srv/packs/demo           --model, of the store that was started
//   serves demo /srv/packs/demo            in the order of their entries in the table
//   serves more /srv/packs/more
//   retired demo /srv/packs/demo-before    replaced or removed; workers or other packs use what is in memory of it
//   checksum 0123456789abcdef

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "store/server/store_options.h"

namespace moestro::store {

struct KeptModels {
  uint64_t dram = 0;
  std::vector<ModelSource> started, served;  ///< `served` has retired packs as well: the arena is theirs too
};

/// Paths have no line breaks (check_kept_path).
std::string serialise_kept_models(const KeptModels& models);
/// Accepts any bytes. kUnsupported: another version; kCorrupt says what is wrong.
Result<KeptModels> parse_kept_models(std::string_view text);

Status write_kept_models(const std::filesystem::path& run_dir, const KeptModels& models);
/// kNotFound if there are none.
Result<KeptModels> read_kept_models(const std::filesystem::path& run_dir);
void remove_kept_models(const std::filesystem::path& run_dir);

/// Rejects a pack's directory that cannot be written to this file.
Status check_kept_path(const std::filesystem::path& pack);

}  // namespace moestro::store
