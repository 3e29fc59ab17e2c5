#include "store/reader/slice_hash.h"

#include "common/xxh3.h"

namespace moestro::store {
namespace {

static_assert(sizeof(SliceHash) == 24, "hashed as it lies");

/// Above this length the low half of XXH3-128 is XXH3-64 (a test holds the library to it): one pass verifies a slice
/// against its checksum and gives what the content hash is made of, so that knowing the content costs no time at all.
constexpr uint32_t kOnePassBytes = 241;

}  // namespace

SliceHash hash_of(const std::byte* bytes, uint32_t length) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, length);
  return {length, hash.low64, hash.high64};
}

uint64_t checksum_of(const std::byte* bytes, const SliceHash& hash) {
  return hash.length >= kOnePassBytes ? hash.low : XXH3_64bits(bytes, hash.length);
}

ContentHash content_of(const std::vector<SliceHash>& slices) {
  const XXH128_hash_t hash = XXH3_128bits(slices.data(), slices.size() * sizeof(SliceHash));
  return {hash.low64, hash.high64};
}

}  // namespace moestro::store
