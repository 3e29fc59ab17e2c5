#pragma once
// The first bytes of a pack's `manifest` file. Their meaning is the same in every version, so that a newer pack can be
// distinguished from a damaged one.
//
//    0        8        12       16             24              32
//   | magic  | version | zero  | payload bytes | payload XXH3  | payload: FlatBuffers PackManifest ...
//
// Little-endian. The file ends with the payload. The payload's XXH3-64 is also the pack's identity.

#include <cstddef>
#include <cstdint>

namespace moestro::store {

struct ManifestHeader {
  char magic[8];
  uint32_t version;
  uint32_t zero;
  uint64_t payload_bytes;
  uint64_t payload_xxh3_64;
};
static_assert(sizeof(ManifestHeader) == 32 && alignof(ManifestHeader) == 8);
static_assert(offsetof(ManifestHeader, version) == 8 && offsetof(ManifestHeader, payload_bytes) == 16);

inline constexpr char kManifestMagic[8] = {'M', 'O', 'E', 'P', 'A', 'C', 'K', '\n'};
inline constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;

}  // namespace moestro::store
