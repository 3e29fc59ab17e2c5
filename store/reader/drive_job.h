#pragma once
// The part of a load on one drive, cut into reads. Small adjacent slices are read together and large ones in pieces, so
// that a read is about one chunk.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/status.h"
#include "store/reader/load.h"
#include "store/reader/slice_hash.h"

namespace moestro::store {

struct DriveSlice {
  LoadSlice on_disk;
  std::byte* into = nullptr;
  uint32_t index = 0;  ///< in the blob
  uint32_t left = 0;   ///< bytes that have not arrived
  SliceHash hash;      ///< set when it is verified
};

/// One request to the drive.
struct DriveRead {
  uint32_t first_slice = 0, slices = 0;  ///< complete slices; a piece of one counts as one
  uint32_t file = 0;
  uint64_t offset = 0;
  std::byte* into = nullptr;
  uint32_t length = 0;  ///< bytes of slices; the request to the drive is rounded up to kDiskAlign
  uint32_t done = 0;    ///< of them, arrived
  uint32_t attempts = 1;
  uint32_t refusals = 0;  ///< how often the kernel had no room for it
};

struct DriveJob {
  uint64_t load = 0;
  ReadClass read_class = ReadClass::kDemand;
  std::vector<DriveSlice> slices;
  std::vector<DriveRead> reads;
  size_t next_read = 0;         ///< the first that was not submitted yet
  std::vector<DriveRead> again;  ///< to be submitted once more, before all others
  size_t slices_left = 0;       ///< not verified yet
  uint32_t in_flight = 0;   ///< reads
  uint32_t unverified = 0;  ///< reads that have arrived
  uint64_t carried = 0;     ///< bytes that the drive has read
  Status failure;  ///< the first one; the job ends when none of its reads is in flight

  bool has_reads() const { return !again.empty() || next_read < reads.size(); }
};

/// Fills `reads` from `slices`, for chunks of `chunk_bytes` (a multiple of kDiskAlign).
void cut_into_reads(DriveJob& job, uint32_t chunk_bytes);

/// A read of one whole slice, after its bytes did not match.
DriveRead read_of_slice(const DriveJob& job, uint32_t slice, uint32_t attempts);

}  // namespace moestro::store
