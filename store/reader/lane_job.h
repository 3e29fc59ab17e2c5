#pragma once
// The part of a load that lies on one drive, cut into reads: small neighbours are read together, large slices in
// pieces, so that a read is about one chunk.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/status.h"
#include "store/reader/load.h"
#include "store/reader/slice_hash.h"

namespace moestro::store {

struct LaneSlice {
  LoadSlice on_disk;
  std::byte* into = nullptr;
  uint32_t index = 0;  ///< in the blob
  uint32_t left = 0;   ///< bytes that are not there yet
  SliceHash hash;      ///< once it is verified
};

/// One request to the drive.
struct LaneRead {
  uint32_t first_slice = 0, slices = 0;  ///< whole ones; a piece of one counts as one
  uint32_t file = 0;
  uint64_t offset = 0;
  std::byte* into = nullptr;
  uint32_t length = 0;  ///< bytes of slices; what is asked of the drive is rounded up to kDiskAlign
  uint32_t done = 0;    ///< of them, there
  uint32_t attempts = 1;
  uint32_t refusals = 0;  ///< the kernel had no room for it
};

struct LaneJob {
  uint64_t load = 0;
  ReadClass read_class = ReadClass::kDemand;
  std::vector<LaneSlice> slices;
  std::vector<LaneRead> reads;
  size_t next_read = 0;         ///< the first that was not submitted yet
  std::vector<LaneRead> again;  ///< to be submitted once more, before all others
  size_t slices_left = 0;       ///< not verified yet
  uint32_t in_flight = 0;   ///< reads
  uint32_t unverified = 0;  ///< reads that are there
  Status failure;  ///< the first one; the job ends when no read of it is under way

  bool has_reads() const { return !again.empty() || next_read < reads.size(); }
};

/// Fills `reads` from `slices`, for chunks of `chunk_bytes` (a multiple of kDiskAlign).
void cut_into_reads(LaneJob& job, uint32_t chunk_bytes);

/// The read of one slice, whole, by itself: after its bytes did not match.
LaneRead read_of_slice(const LaneJob& job, uint32_t slice, uint32_t attempts);

}  // namespace moestro::store
