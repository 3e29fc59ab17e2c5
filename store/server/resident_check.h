#pragma once
// Compares adopted blobs with the checksums of their packs, one slice at a time, so that the store's thread can serve
// in between. The blob added last is checked first; a blob that a worker waits for is added again.

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "store/layout/content_hash.h"
#include "store/pack/manifest.h"
#include "store/reader/slice_hash.h"

namespace moestro::store {

class ResidentCheck {
 public:
  struct Outcome {
    uint32_t entry = 0;
    uint64_t check = 0;  ///< the number that add() was given
    bool right = false;
  };
  /// `blob` and `bytes` must live until the outcome or forget(). The bytes must also match `content`. If the same entry
  /// and number are added again, the check moves to the front and keeps its progress.
  void add(uint32_t entry, uint64_t check, const Blob& blob, const std::byte* bytes, const ContentHash& content);
  /// Checks one slice of the first blob. Returns an outcome after its last slice, or at a wrong one.
  std::optional<Outcome> step();
  /// Entries [first, first + count) are no longer in use.
  void forget(uint32_t first, uint32_t count);
  bool idle() const { return jobs_.empty(); }
  uint64_t bytes_checked() const { return bytes_checked_; }

 private:
  struct Job {
    uint32_t entry;
    uint64_t check;
    const Blob* blob;
    const std::byte* bytes;
    ContentHash content;
    size_t slices_done = 0;
    std::vector<SliceHash> hashes;  ///< of each slice so far
  };
  std::list<Job> jobs_;
  std::unordered_map<uint32_t, std::list<Job>::iterator> at_;
  uint64_t bytes_checked_ = 0;
};

}  // namespace moestro::store
