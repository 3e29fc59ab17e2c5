#pragma once
// Reads the blobs of a pack with plain reads and checks every slice. For tools and tests: the store has its own reader.

#include <filesystem>
#include <functional>
#include <vector>

#include "store/pack/file.h"
#include "store/pack/manifest.h"

namespace moestro::store {

class SliceReader {
 public:
  /// `manifest` must outlive the reader.
  static Result<SliceReader> open(const std::filesystem::path& dir, const Manifest& manifest);

  /// Reads the blob's bytes into `out` (blob.length bytes). kCorrupt, naming blob, file and bytes, if a checksum
  /// differs. Any thread.
  Status read_blob(uint32_t blob, std::span<std::byte> out) const;
  /// Reads it piece by piece and only checks it. `look` (may be empty) gets each piece that matched its checksum, with
  /// its offset in the blob, and may return an error.
  using Look = std::function<Status(uint64_t offset, std::span<const std::byte> bytes)>;
  Status check_blob(uint32_t blob, const Look& look = {}) const;

 private:
  explicit SliceReader(const Manifest& manifest) : manifest_(&manifest) {}
  Status read_slice(uint32_t blob, const Slice& slice, std::span<std::byte> out) const;

  const Manifest* manifest_;
  std::vector<File> files_;
};

}  // namespace moestro::store
