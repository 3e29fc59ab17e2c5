#pragma once
#include <filesystem>
#include <functional>

#include "store/pack/manifest.h"

namespace moestro::store {

struct VerifyReport {
  uint64_t bytes = 0;       ///< read
  uint32_t blobs_bad = 0;
  uint32_t copied_bad = 0;  ///< of the small copied files
  Status first_error;  ///< of the first bad blob in the manifest; if all blobs are good, of the first bad file
};

/// Reads a whole pack with `jobs` threads, and checks every checksum and that every number is finite. A damaged blob
/// does not stop it.
Result<VerifyReport> verify_pack(const std::filesystem::path& dir, const Manifest& manifest, unsigned jobs,
                                 const std::function<void(uint64_t done_bytes, uint64_t total_bytes)>& progress);

}  // namespace moestro::store
