#pragma once
// What was resident when a store was shut down, hottest first: RUN_DIR/warm-set, written by rename. Blobs are named by
// pack and index, so a set of other packs, or of other versions, is ignored.
//
//   moestro-warm-set 1
//   pack 7f3a90c1d2e4b586       identity of a manifest; numbered from 0
//   0 17 3.25                   pack 0, blob 17, its heat (CachePolicy::heat)
//   checksum 0123456789abcdef

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::store {

struct WarmSet {
  struct Item {
    uint32_t pack = 0, blob = 0;
    double heat = 0;
  };
  std::vector<uint64_t> packs;
  std::vector<Item> items;  ///< hottest first
};

std::string serialise_warm_set(const WarmSet& set);
/// Accepts any bytes. kUnsupported: another version; kCorrupt says what is wrong.
Result<WarmSet> parse_warm_set(std::string_view text);

Status write_warm_set(const std::filesystem::path& path, const WarmSet& set);
/// kNotFound if there is none.
Result<WarmSet> read_warm_set(const std::filesystem::path& path);

}  // namespace moestro::store
