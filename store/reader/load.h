#pragma once
// Requests to the loader, and their outcomes.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/status.h"
#include "store/layout/content_hash.h"
#include "store/read_class.h"

namespace moestro::store {

/// A slice for the reader. In the arena slices are adjacent; only the last may have a length that is not a multiple of
/// kDiskAlign.
struct LoadSlice {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint32_t length = 0;
  uint64_t xxh3_64 = 0;
};

struct LoadRequest {
  uint64_t load = 0;  ///< identifies this load in its outcome
  std::byte* into = nullptr;
  std::vector<LoadSlice> slices;
  ReadClass read_class = ReadClass::kDemand;
};

struct LoadOutcome {
  uint64_t load = 0;
  Status status;          ///< names file and offset; kCorrupt or kIo, or kCancelled
  ContentHash content;    ///< of the bytes that were read; not known if the load failed
  uint64_t carried = 0;   ///< bytes that the drives have read for it, also if it failed or was cancelled
};

}  // namespace moestro::store
