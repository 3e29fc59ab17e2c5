#pragma once
// Checksums and the content hash of a blob, from one pass over each of its slices.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/layout/content_hash.h"

namespace moestro::store {

/// The contribution of each slice to a blob's content hash.
struct SliceHash {
  uint64_t length = 0, low = 0, high = 0;
};

SliceHash hash_of(const std::byte* bytes, uint32_t length);
/// The slice's XXH3-64.
uint64_t checksum_of(const std::byte* bytes, const SliceHash& hash);
/// The content hash of a blob whose slices, in order, have these hashes.
ContentHash content_of(const std::vector<SliceHash>& slices);

}  // namespace moestro::store
