#pragma once
// The file `directory` of the arena directory: which packs the table's entries belong to. It is written by rename when
// the arena is complete, so an arena without it was never finished. It is text, for people who repair a machine:
//
//   moestro-arena 2
//   shared-version 2
//   arena-bytes 6442450944
//   entries 1024
//   segment-bytes 2359296                               length of segments, which are cut from the arena's end down
//   window 4 8388608                                    places for dense weights that take turns, and their length
//   pack 7f3a90c1d2e4b586 0 1024 /srv/packs/mixtral     identity of the manifest, first entry, number of blobs, path
//   streamed 2 4 6                                      blobs of the pack before that take turns
//   checksum 0123456789abcdef                           XXH3-64 of everything before this line

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::store {

struct ArenaDirectory {
  struct Pack {
    uint64_t identity = 0;
    uint32_t first_entry = 0, blobs = 0;
    std::string path;  ///< for messages only: a pack that was moved is still the same pack
    std::vector<uint32_t> streamed = {};  ///< blobs, ascending
  };
  uint32_t shared_version = 0;
  uint64_t arena_bytes = 0;
  uint32_t entries = 0;
  uint64_t segment_bytes = 0;
  uint32_t window_places = 0;  ///< 0: no line says so
  uint64_t window_place_bytes = 0;
  std::vector<Pack> packs;
};

std::string serialise_directory(const ArenaDirectory& directory);
/// Accepts any bytes. kUnsupported: another version; kCorrupt says what is wrong.
Result<ArenaDirectory> parse_directory(std::string_view text);

/// Writes DIR/directory completely or not at all.
Status write_directory(const std::filesystem::path& dir, const ArenaDirectory& directory);
/// kNotFound if there is none.
Result<ArenaDirectory> read_directory(const std::filesystem::path& dir);

}  // namespace moestro::store
